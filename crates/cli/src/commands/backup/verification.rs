//! The verification of the directory of a backup that follows a cluster: reads all archives and journals to their ends and compares their checksums.
//! Nothing is restored.

use std::io::Read;
use std::path::Path;

use model::Timestamp;
use node::cluster_archive::{ArchiveFormat, ClusterArchiveReader};
use node::restore::{ArchiveInput, ChangesChain};

use super::directory::{FollowDirectory, RestorePosition, StateSummary, damage_in, moments};
use super::encryption::DecryptArgs;
use super::open_input;
use crate::failure::{Failure, Result};
use crate::progress::Progress;

/// Reads all that these summaries have, and notes what is damaged in them.
pub(super) fn verify(
    directory: &FollowDirectory,
    states: &mut [StateSummary],
    encryption: &DecryptArgs,
    progress: &Progress,
) -> Result {
    progress.set_total(states.iter().map(|state| state.bytes + state.journal.bytes).sum(), 0);
    for state in states {
        let path = state.file.path.clone();
        let verified = verify_state(directory, state, encryption, progress);
        // A backup may have removed it meanwhile.
        if path.exists() {
            verified?;
        }
    }
    Ok(())
}

fn verify_state(
    directory: &FollowDirectory,
    state: &mut StateSummary,
    encryption: &DecryptArgs,
    progress: &Progress,
) -> Result {
    state.damage = damage_in(verify_archive(&state.file.path, encryption, progress))?;
    let (begin_us, Some(last_us)) = (state.header.id.time_us, state.journal.last_us) else { return Ok(()) };
    let (number, path) = (state.file.number, directory.journal(state.file.number));
    let mut chain = ChangesChain::after(&state.file.path.display().to_string(), state.header);
    let mut whole_us = begin_us;
    for moment in moments(&path, (begin_us, last_us), encryption.clone(), RestorePosition::default())? {
        let verified = moment.and_then(|(time_us, input)| {
            let (name, reader) = chain.begin(time_us, input)?;
            read_to_end(&name, reader, progress)?;
            whole_us = time_us;
            Ok(())
        });
        if let Some(damage) = damage_in(verified.map_err(Failure::local))? {
            let before = Timestamp::from_micros(whole_us);
            state.journal = directory.journal_up_to(number, whole_us)?;
            state.journal.damage = Some(format!("{damage}; the last moment before is {before}"));
            break;
        }
    }
    Ok(())
}

/// Reads an archive of a state to its end.
fn verify_archive(path: &Path, encryption: &DecryptArgs, progress: &Progress) -> Result {
    let ArchiveInput { name, bytes } = open_input(path, encryption)?;
    match ClusterArchiveReader::begin(bytes).map_err(|error| Failure::local(error).context(&name))? {
        ArchiveFormat::Cluster(reader, _) => read_to_end(&name, reader, progress).map_err(Failure::local),
        ArchiveFormat::Other(..) => Err(Failure::corrupt(format!("{name} is not an archive of a cluster"))),
    }
}

fn read_to_end(name: &str, mut reader: ClusterArchiveReader<impl Read>, progress: &Progress) -> model::Result<()> {
    let mut read = 0;
    loop {
        let item = reader.next_item();
        progress.advance(reader.bytes_read() - read, 0);
        read = reader.bytes_read();
        match item {
            Ok(Some(_)) => {}
            Ok(None) => return Ok(()),
            Err(error) => return Err(model::Error::new(error.kind(), format!("{name}: {error}")).with_source(error)),
        }
    }
}
