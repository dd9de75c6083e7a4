//! The bytes of openings in a log: numbers of 8 bytes, little-endian, after a byte for the version.
//!
//! ```text
//!  history    version  accepted  0  0  { number  nonce  from }...
//!  witnesses  version  { brick (0: the catalogue)  number  nonce  position  microseconds }...
//! ```

use model::{Error, ErrorKind, Result, limits};

use super::{
    ForcedPosition, MAX_STARTS, MAX_SUBJECTS, MAX_WITNESSED_OPENINGS, Opening, OpeningHistory, OpeningStart, Subject,
    WitnessedPosition, Witnesses,
};

const VERSION: u8 = 1;

impl OpeningHistory {
    /// The bytes for the log.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        // The first entry is about accepted losses.
        let starts = self.starts.iter().map(|start| [start.opening.number, start.opening.nonce, start.from]);
        encode([[self.accepted, 0, 0]].into_iter().chain(starts))
    }

    /// Decodes the bytes of a log.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for a newer version; [`ErrorKind::Corrupt`] if numbers or positions fall, or bytes are missing.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut entries = decode(bytes, MAX_STARTS + 1)?.into_iter();
        let [accepted, _, _] = entries.next().ok_or_else(|| damage_error("it is too short"))?;
        let starts = entries.map(|[number, nonce, from]| OpeningStart { opening: Opening { number, nonce }, from });
        let history = Self { starts: starts.collect(), accepted };
        if history.is_valid() { Ok(history) } else { Err(damage_error("its numbers fall, or are too large")) }
    }
}

impl Witnesses {
    /// The bytes for the log.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        encode(self.iter().map(|(subject, WitnessedPosition { forced, at_us })| {
            let brick = if let Subject::Brick(brick) = subject { u64::from(brick) } else { 0 };
            [brick, forced.opening.number, forced.opening.nonce, forced.position, at_us]
        }))
    }

    /// Decodes the bytes of a log.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for a newer version; [`ErrorKind::Corrupt`] if a number is too large, or bytes are missing.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut witnesses = Self::default();
        for [brick, number, nonce, position, at_us] in decode(bytes, MAX_SUBJECTS * MAX_WITNESSED_OPENINGS)? {
            let brick = u32::try_from(brick).map_err(|_| damage_error("a number of a brick is too large"))?;
            if number > limits::COUNT {
                return Err(damage_error("a number of an opening is too large"));
            }
            let subject = if brick == 0 { Subject::Catalogue } else { Subject::Brick(brick) };
            witnesses.note(subject, ForcedPosition { opening: Opening { number, nonce }, position }, at_us);
        }
        Ok(witnesses)
    }
}

fn encode<const N: usize>(entries: impl Iterator<Item = [u64; N]>) -> Vec<u8> {
    let mut bytes = vec![VERSION];
    entries.flatten().for_each(|number| bytes.extend_from_slice(&number.to_le_bytes()));
    bytes
}

fn decode<const N: usize>(bytes: &[u8], most: usize) -> Result<Vec<[u64; N]>> {
    let (version, rest) = bytes.split_first().ok_or_else(|| damage_error("it is empty"))?;
    if *version != VERSION {
        let what = format!("openings of version {version}, which this version of Mortar cannot read: upgrade it");
        return Err(Error::new(ErrorKind::Unsupported, what));
    }
    let (numbers, odd) = rest.as_chunks::<8>();
    let (entries, incomplete) = numbers.as_chunks::<N>();
    if !odd.is_empty() || !incomplete.is_empty() || entries.len() > most {
        return Err(damage_error("it has another length"));
    }
    Ok(entries.iter().map(|entry| entry.map(u64::from_le_bytes)).collect())
}

fn damage_error(why: &str) -> Error {
    Error::new(ErrorKind::Corrupt, format!("a row about openings is damaged: {why}; restore the directory"))
}
