//! The fuzz target of the log, which recovery reads from a disk that may be damaged anywhere.

use store::check_log_payload;
use store::log::frame::{ALIGN, StoreId, decode, encode, frame_len, scan};

const STORE: StoreId = [7; 16];

pub(crate) fn run(data: &[u8]) {
    // As a segment: every frame that a scan finds lies within the segment and can be decoded at its position.
    for (at, header) in scan(data, &STORE) {
        let (again, payload) = decode(&data[at..], &STORE).expect("a scan finds valid frames");
        assert_eq!((again, payload.len()), (header, header.len as usize));
        let _ = check_log_payload(payload);
    }
    // As a payload: a frame with it can be decoded, also after other bytes. A truncated or changed frame cannot.
    let mut framed = vec![0xa5; ALIGN];
    let Ok(crc) = encode(&mut framed, &STORE, 3, 2, 1, |out| out.extend_from_slice(data)) else { return };
    assert_eq!(framed.len(), ALIGN + frame_len(data.len()));
    let (header, payload) = decode(&framed[ALIGN..], &STORE).expect("a frame");
    assert_eq!((header.seq, header.forced, header.prev, header.crc, payload), (3, 2, 1, crc, data));
    assert_eq!(scan(&framed, &STORE).next(), Some((ALIGN, header)));
    let changed = ALIGN + 4 + (crc as usize) % (frame_len(data.len()) - 4).min(28 + data.len());
    framed[changed] ^= 1;
    assert!(decode(&framed[ALIGN..], &STORE).is_none(), "byte {changed} was changed");
    let _ = check_log_payload(data);
}
