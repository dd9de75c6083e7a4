use model::limits;
use proptest::prelude::*;

use super::*;

const ID: ContentId = ContentId(0x1234);

fn head() -> ContentHead {
    ContentHead { size: 70_000, data: DataId(77) }
}

#[test]
fn a_head_of_another_content_is_refused() {
    let row = head().encode(ID);
    assert_eq!(ContentHead::decode(ID, &row), Ok(head()));
    assert_eq!(ContentHead::decode(ContentId(ID.0 + 1), &row), Err(RowError::Head));
}

#[test]
fn a_head_of_another_format_is_refused_with_both_formats() {
    let mut row = head().encode(ID);
    row[0] = 1;
    let refused = ContentHead::decode(ID, &row).unwrap_err();
    assert_eq!(refused.to_string(), "its row has format 1; this version reads format 2");
}

#[test]
fn every_flipped_bit_of_a_head_is_noticed() {
    let row = head().encode(ID);
    for bit in 0..HEAD * 8 {
        let mut bad = row;
        bad[bit / 8] ^= 1 << (bit % 8);
        assert!(ContentHead::decode(ID, &bad).is_err(), "bit {bit}");
    }
}

#[test]
fn a_damaged_block_is_named_by_its_range() {
    let bytes = vec![7; 3 * BLOCK];
    let mut row = BytesMut::new();
    put_inline(&mut row, &bytes);
    let last = row.len() - 1;
    row[last] ^= 1;
    let Chunk::Inline { blocks, bytes } = Chunk::decode(&row).unwrap() else { panic!("not inline") };
    assert_eq!(check_blocks(blocks, 0, &bytes[..2 * BLOCK], 0), Ok(()));
    assert_eq!(check_blocks(blocks, 0, bytes, 65_536), Err(RowError::Block(73_728, 77_824)));
}

#[test]
fn only_the_block_that_is_marked_is_damaged() {
    let mut row = BytesMut::new();
    put_inline(&mut row, &[7; 3 * BLOCK]);
    mark_damaged(&mut row, 1);
    let Chunk::Inline { blocks, bytes } = Chunk::decode(&row).unwrap() else { panic!("not inline") };
    let check = |block: usize| check_blocks(blocks, block, &bytes[block * BLOCK..][..BLOCK], 0).is_ok();
    assert_eq!([check(0), check(1), check(2)], [true, false, true]);
}

fn extent(file: u32, offset: u64) -> Extent {
    Extent { file, offset, len: CHUNK as u32, crc: 9, blocks: vec![5; CHUNK / BLOCK * 4].into() }
}

#[test]
fn an_extent_where_no_chunk_can_be_is_refused_by_its_position() {
    let decode = |file, offset| {
        let mut row = BytesMut::new();
        put_extent(&mut row, &extent(file, offset));
        Chunk::decode(&row).map(drop)
    };
    for (file, offset) in [(1, 0), ((1 << 31) - 1, 0), (1, (1 << 32) - CHUNK as u64)] {
        assert_eq!(decode(file, offset), Ok(()));
    }
    for (file, offset) in [(0, 0), (u32::MAX, 0), (1, u64::MAX), (1, u64::MAX << 16), (1, 1 << 32), (1, 4096)] {
        assert_eq!(decode(file, offset), Err(RowError::Position(file, offset)));
    }
}

#[test]
fn a_value_that_is_too_long_is_refused() {
    let longest = vec![7; limits::ROW_VALUE + 1];
    assert_eq!(unseal(b"key", &seal(b"key", &longest[1..])), Ok(limits::ROW_VALUE));
    assert_eq!(unseal(b"key", &seal(b"key", &longest)), Err(RowError::Long));
}

proptest! {
    #[test]
    fn chunks_of_any_bytes_never_panic(row in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = Chunk::decode(&row);
        let _ = ContentHead::decode(ID, &row);
        let _ = unseal(b"key", &row);
    }

    #[test]
    fn extents_round_trip(file in 1..1u32 << 31, slot: u16, crc: u32, blocks in 1usize..=16) {
        let offset = u64::from(slot) * CHUNK as u64;
        let extent = Extent { file, offset, len: (blocks * BLOCK) as u32, crc, blocks: vec![5; blocks * 4].into() };
        let mut row = BytesMut::new();
        put_extent(&mut row, &extent);
        prop_assert_eq!(Chunk::decode(&row), Ok(Chunk::Extent(extent)));
    }
}
