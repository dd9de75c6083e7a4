//! How a meta-server compares its catalogue with what others saw of it.

use meta::catalog::{Catalog, CatalogEditor, check_went_back};
use meta::opening::ForcedPosition;
use model::Result;

use super::asking::{Asked, NO_BRICK, Question, ask_all, members};
use super::witnessed_from_proto;
use crate::auth::ClusterCredentials;

/// Asks all processes that the catalogue knows what they saw of it, before it is served.
///
/// # Errors
/// [`ErrorKind::Denied`](model::ErrorKind::Denied) if one of them saw a later state; those of the catalogue's store.
pub(crate) async fn check_catalogue(
    editor: &CatalogEditor,
    catalog: &Catalog,
    credentials: &ClusterCredentials,
) -> Result<()> {
    for (member, asked) in ask_all(members(catalog, NO_BRICK), credentials, Question::seen_of(NO_BRICK)).await {
        let Asked::Saw(seen) = asked else { continue };
        for seen in seen.seen.iter().filter(|seen| seen.brick == NO_BRICK.0) {
            check_own_position(editor, witnessed_from_proto(seen)?.1.forced, &format!("{} saw it", member.name))
                .await?;
        }
    }
    Ok(())
}

/// Compares the newest state of the catalogue with what a witness saw.
///
/// # Errors
/// As [`check_catalogue`].
pub(crate) async fn check_own_position(editor: &CatalogEditor, seen: ForcedPosition, witness: &str) -> Result<()> {
    let history = editor.own_openings().await?;
    let revision = editor.store().get(Vec::new()).await?.revision;
    check_went_back(&history, revision, seen, witness)
}
