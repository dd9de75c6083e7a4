use std::time::Instant;
use client::{Client, IsolationLevel, PlacementHint};
use model::{ClassId, Object};
#[tokio::main(flavor = "current_thread")]
async fn main() {
    let url = std::env::args().nth(1).unwrap();
    let client = Client::connect(&url).await.unwrap();
    for (objects, bytes) in [(1_000, 100), (10_000, 100), (100_000, 100), (16, 4 << 20), (63, 4 << 20)] {
        let t = client.begin(IsolationLevel::Optimistic);
        let start = Instant::now();
        for _ in 0..objects {
            t.create_object(ClassId::NONE, Object::blob(vec![7; bytes - 500 * usize::from(bytes > 1000)].into()), PlacementHint::Anywhere).unwrap();
        }
        let made = start.elapsed();
        let outcome = t.commit().await.unwrap();
        println!("{objects} x {bytes}: {made:?} {:?} {outcome:?}", start.elapsed() - made);
    }
    for names in [1_000, 10_000, 50_000] {
        let t = client.begin(IsolationLevel::Optimistic);
        let start = Instant::now();
        for n in 0..names {
            let oid = t.create_blob("x").unwrap();
            t.bind(&format!("dir{names}/name-{n}"), oid).await.unwrap();
        }
        let made = start.elapsed();
        let outcome = t.commit().await.unwrap();
        println!("{names} names: {made:?} {:?} {outcome:?}", start.elapsed() - made);
    }
}
