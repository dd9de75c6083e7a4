use super::*;
use crate::opening::plant::Bug;
use crate::opening::{OpeningHistory, OpeningRecord};

async fn load_opening(editor: &CatalogEditor, id: BrickId) -> crate::catalog::BrickOpening {
    let catalog = Catalog::load(&editor.store().read(Prefix::all()).await.unwrap());
    catalog.opening(id).cloned().unwrap_or_default()
}

#[tokio::test]
async fn opening_is_claimed_confirmed_and_forgotten_with_its_brick() {
    let editor = editor();
    let id = editor.add_brick(&["a:1".to_owned()], Storage::Durable).await.unwrap().value.id;
    assert_eq!(editor.opening(id).await.unwrap(), None);
    assert_eq!(editor.opening(BrickId(9)).await.unwrap_err().kind(), ErrorKind::NotFound);
    editor.record_refusal(id, &"ä".repeat(900)).await.unwrap();
    assert!(load_opening(&editor, id).await.refused.unwrap().len() > 900);

    let claim = OpeningHistory::default().claim(editor.opening(id).await.unwrap(), 3, 7).unwrap();
    for _ in 0..2 {
        assert!(editor.replace_opening(id, claim.expected, claim.claimed).await.unwrap().value);
    }
    editor.record_position(id, claim.opening, 5).await.unwrap();
    assert_eq!(load_opening(&editor, id).await.record, claim.claimed, "a claimed opening has no positions");
    assert!(load_opening(&editor, id).await.refused.is_some());
    for _ in 0..2 {
        assert!(editor.replace_opening(id, Some(claim.claimed), claim.confirmed).await.unwrap().value);
    }
    assert_eq!(load_opening(&editor, id).await.refused, None);
    for (position, kept) in [(9, 9), (8, 9)] {
        editor.record_position(id, claim.opening, position).await.unwrap();
        assert_eq!(load_opening(&editor, id).await.record, OpeningRecord { position: kept, ..claim.confirmed });
    }
    editor.remove_brick(id).await.unwrap();
    assert_eq!(load_opening(&editor, id).await.record, OpeningRecord::default());
}

/// Two processes with copies of one directory claim at the same time.
fn of_two_claims_one_is_confirmed() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let editor = editor();
        let id = editor.add_brick(&["a:1".to_owned()], Storage::Durable).await.unwrap().value.id;
        let log = OpeningHistory::default();
        let claims = [1, 2].map(|nonce| log.claim(None, 0, nonce).unwrap());
        let mut confirmed = 0;
        for claim in &claims {
            if editor.replace_opening(id, claim.expected, claim.claimed).await.unwrap().value {
                let to = editor.replace_opening(id, Some(claim.claimed), claim.confirmed).await.unwrap();
                confirmed += usize::from(to.value);
            }
        }
        assert_eq!(confirmed, 1);
    });
}

#[test]
fn unchecked_claim_is_noticed() {
    model::planted_bug::assert_noticed(&[Bug::ClaimUnchecked], of_two_claims_one_is_confirmed);
}
