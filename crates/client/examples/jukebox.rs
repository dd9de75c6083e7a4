//! A jukebox: albums with tracks, and how often each was played. Any number of these programs may run at once.
//!
//! ```sh
//! mortar dev --bricks 2 --peers 1 &
//! cargo run -p mortar-client --example jukebox -- mortar://localhost:6678/main
//! ```

#![allow(clippy::print_stdout, reason = "a program that is run by hand shows what it does")]

use client::{Client, Persistent, PlacementHint, Ref, Result, Transaction};

#[derive(Persistent, Clone, Debug)]
struct Artist {
    #[persistent(index)]
    name: String,
}

#[derive(Persistent, Clone, Debug)]
struct Album {
    title: String,
    artist: Ref<Artist>,
    tracks: Vec<Ref<Track>>,
}

#[derive(Persistent, Clone, Debug)]
struct Track {
    title: String,
    seconds: u32,
    /// Added after the first version: tracks from before it were never played.
    #[persistent(default)]
    played: i64,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "mortar://localhost:6678/main".to_owned());
    let cluster = Client::connect(&url).await?;
    for line in run(&cluster).await? {
        println!("{line}");
    }
    Ok(())
}

/// Plays an album and returns its description.
pub(crate) async fn run(cluster: &Client) -> Result<Vec<String>> {
    // Defines the class of albums and those that it refers to.
    cluster.define::<Album>().await?;
    let album = cluster.transact(album).await?;
    cluster.transact(|t| play(t, album)).await?;
    cluster.transact(|t| describe(t, album)).await
}

/// The album of this jukebox. The first program creates it.
async fn album(t: Transaction) -> Result<Ref<Album>> {
    if let Some(album) = t.resolve_ref("albums/blue").await? {
        return Ok(album);
    }
    let artist = t.create(Artist { name: "Ann and the Bricks".to_owned() }).await?;
    let album = t.create(Album { title: "Blue".to_owned(), artist, tracks: Vec::new() }).await?;
    for (title, seconds) in [("Sea", 190), ("Sky", 205), ("Ink", 160)] {
        let track = Track { title: title.to_owned(), seconds, played: 0 };
        // Near the album, so that both are fetched together.
        let track = t.create_with(track, PlacementHint::Near(album.oid())).await?;
        t.load_mut(album).await?.tracks.push(track);
    }
    t.bind("albums/blue", album).await?;
    Ok(album)
}

/// Plays all tracks. If two programs play at the same time, one of the transactions is repeated, so both count.
async fn play(t: Transaction, album: Ref<Album>) -> Result<()> {
    // Fetches all tracks at once instead of one by one.
    t.prefetch_along([album], &["tracks"]).await?;
    for track in &t.load(album).await?.tracks {
        t.load_mut(*track).await?.played += 1;
    }
    Ok(())
}

async fn describe(t: Transaction, album: Ref<Album>) -> Result<Vec<String>> {
    let album = t.load(album).await?;
    let artist = t.load(album.artist).await?;
    let mut lines = vec![format!("{} by {}", album.title, artist.name)];
    for track in t.load_all(album.tracks.iter().copied()).await? {
        let Track { title, seconds, played } = &*track;
        lines.push(format!("  {title} ({}:{:02}), played {played} times", seconds / 60, seconds % 60));
    }
    Ok(lines)
}
