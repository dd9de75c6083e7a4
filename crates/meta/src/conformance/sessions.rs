//! Sessions.

use std::sync::Arc;
use std::time::Duration;

use model::ErrorKind;
use tokio::time;

use super::{Subject, attach, key, next, put, show, show_batch, write};
use crate::{Expect, KeyChange, MetaStore, Prefix};

pub(super) async fn an_ended_session_takes_its_keys_along(subject: &dyn Subject, store: Arc<dyn MetaStore>) {
    let session = store.open_session(Duration::from_secs(600)).await.unwrap();
    let other = store.open_session(Duration::from_secs(600)).await.unwrap();
    assert_ne!(session.id, other.id);
    assert!(session.ttl >= Duration::from_secs(600));
    write(&store, vec![], vec![attach("a", "1", session.id), attach("b", "1", other.id), put("c", "1")]).await;
    let last = write(&store, vec![], vec![attach("d", "1", session.id)]).await;
    let state = store.read(Prefix::all()).await.unwrap();
    assert_eq!(state.entry(&key("a")).unwrap().session, Some(session.id));
    assert_eq!(state.entry(&key("c")).unwrap().session, None);
    let mut watch = store.watch(Prefix::all(), last).await.unwrap();
    store.end_session(session.id).await.unwrap();
    let batch = next(&mut watch).await;
    assert_eq!(show_batch(&batch), "a- d-");
    let state = store.read(Prefix::all()).await.unwrap();
    assert!(state.revision >= batch.revision);
    assert_eq!(show(&state), "b=1 c=1");
    store.end_session(session.id).await.unwrap();
    store.renew_session(other.id).await.unwrap();
    assert_eq!(store.open_session(Duration::from_millis(1)).await.unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(store.open_session(Duration::MAX).await.unwrap_err().kind(), ErrorKind::Invalid);
    assert!(subject.shortest_ttl() < Duration::from_secs(600));
}

pub(super) async fn a_session_lives_as_long_as_it_is_kept(subject: &dyn Subject, store: Arc<dyn MetaStore>) {
    let ttl = subject.shortest_ttl();
    let kept = store.open_session(ttl).await.unwrap();
    let left = store.open_session(ttl).await.unwrap();
    assert!(kept.ttl >= ttl);
    let last = write(&store, vec![], vec![attach("kept", "1", kept.id), attach("left", "1", left.id)]).await;
    let mut watch = store.watch(Prefix::all(), last).await.unwrap();
    let keeper = store.clone();
    let keeping = tokio::spawn(async move {
        loop {
            keeper.renew_session(kept.id).await.unwrap();
            time::sleep(kept.ttl / 5).await;
        }
    });
    assert_eq!(show_batch(&next(&mut watch).await), "left-");
    assert_eq!(show(&store.read(Prefix::all()).await.unwrap()), "kept=1");
    assert_eq!(store.renew_session(left.id).await.unwrap_err().kind(), ErrorKind::NotFound);
    keeping.abort();
    assert_eq!(show_batch(&next(&mut watch).await), "kept-");
    assert_eq!(store.renew_session(kept.id).await.unwrap_err().kind(), ErrorKind::NotFound);
}

pub(super) async fn keys_change_their_session(_: &dyn Subject, store: Arc<dyn MetaStore>) {
    let first = store.open_session(Duration::from_secs(600)).await.unwrap().id;
    let second = store.open_session(Duration::from_secs(600)).await.unwrap().id;
    write(&store, vec![], vec![attach("stays", "1", first), attach("moves", "1", first), attach("goes", "1", first)])
        .await;
    write(&store, vec![], vec![put("stays", "2"), attach("moves", "2", second)]).await;
    store.end_session(first).await.unwrap();
    assert_eq!(show(&store.read(Prefix::all()).await.unwrap()), "moves=2 stays=2");
    write(&store, vec![], vec![KeyChange::remove(key("moves"))]).await;
    write(&store, vec![], vec![put("moves", "3")]).await;
    store.end_session(second).await.unwrap();
    assert_eq!(show(&store.read(Prefix::all()).await.unwrap()), "moves=3 stays=2");
}

pub(super) async fn ended_sessions_take_no_keys(_: &dyn Subject, store: Arc<dyn MetaStore>) {
    let session = store.open_session(Duration::from_secs(600)).await.unwrap().id;
    let first = write(&store, vec![], vec![put("a", "1")]).await;
    store.end_session(session).await.unwrap();
    let changes = vec![put("b", "1"), attach("a", "2", session)];
    let refused = store.write(vec![Expect::at(key("a"), first)], changes).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NotFound);
    assert_eq!(show(&store.read(Prefix::all()).await.unwrap()), "a=1");
    assert_eq!(store.renew_session(session).await.unwrap_err().kind(), ErrorKind::NotFound);
}
