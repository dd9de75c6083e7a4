use super::*;
use model::planted_bug::assert_noticed;

const SPACE: SpaceId = SpaceId(1);
const NODES: [NodeId; 3] = [NodeId(1), NodeId(2), NodeId(3)];

/// Leases a page; page numbers are reserved as they are needed, from `next` on.
fn lease(allocator: &mut PageAllocator, next: &mut u64, node: Option<NodeId>, len: usize) -> OpenPage {
    match allocator.lease((SPACE, &NODES), &BTreeSet::new(), node, len).unwrap() {
        Lease::Page(page) => page,
        Lease::NeedsNumbers(node) => {
            allocator.add_reserved(node, *next).unwrap();
            *next += u64::from(RESERVED_PAGES);
            allocator.take_new(SPACE, node).unwrap()
        }
    }
}

/// Transactions that overlap create objects, and are committed or not, at random. No slot is given to two objects that exist.
fn committed_objects_have_slots_of_their_own() {
    let (mut allocator, mut next, mut random) = (PageAllocator::default(), 0, 7_u64);
    let mut number = |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % below
    };
    let mut running: Vec<(PageLease, Vec<Oid>)> = Vec::new();
    let mut committed = BTreeSet::new();
    for _ in 0..3_000 {
        if running.len() < 4 {
            running.push(Default::default());
        }
        let at = number(running.len() as u64) as usize;
        let (leased, created) = &mut running[at];
        let (hint, len) = (Some(NODES[number(3) as usize]).filter(|_| number(2) == 0), number(3_000) as usize);
        if leased.open_page(hint, len).is_none() {
            let page = lease(&mut allocator, &mut next, hint, len);
            leased.add(hint, page);
        }
        created.push(leased.open_page(hint, len).unwrap().place(ClassId::NONE, len));
        if number(4) == 0 {
            let (mut leased, created) = running.swap_remove(at);
            let is_unused = number(3) == 0;
            leased.take_pages(is_unused).into_iter().for_each(|page| allocator.release(page));
            for oid in created.into_iter().filter(|_| !is_unused) {
                assert!(committed.insert(oid), "{oid} was given to two objects");
            }
        }
    }
    assert!(committed.len() > 1_000);
}

#[test]
fn no_slot_is_given_to_two_objects() {
    assert_noticed(&[Bug::LeasedPageReused, Bug::PageNumberReused], committed_objects_have_slots_of_their_own);
}

#[test]
fn objects_without_a_hint_avoid_unreachable_logical_nodes() {
    let mut allocator = PageAllocator::default();
    let unreachable = [NODES[0], NODES[1]].into();
    let wants = |allocator: &mut PageAllocator, node| allocator.lease((SPACE, &NODES), &unreachable, node, 10).unwrap();
    assert_eq!(wants(&mut allocator, None), Lease::NeedsNumbers(NODES[2]));
    assert_eq!(wants(&mut allocator, Some(NODES[0])), Lease::NeedsNumbers(NODES[0]), "a hint is followed");
    let none = allocator.lease((SPACE, &[]), &unreachable, None, 10).unwrap_err();
    assert_eq!(none.kind(), ErrorKind::Unavailable);
}

#[test]
fn transaction_that_is_not_committed_leaves_no_gap() {
    let (mut allocator, mut next) = (PageAllocator::default(), 0);
    let mut create = |is_unused| {
        let mut leased = PageLease::default();
        let page = lease(&mut allocator, &mut next, None, 100);
        leased.add(None, page);
        let oid = leased.open_page(None, 100).unwrap().place(ClassId::NONE, 100);
        leased.take_pages(is_unused).into_iter().for_each(|page| allocator.release(page));
        oid
    };
    let aborted = create(true);
    let committed = create(false);
    assert_eq!(aborted, committed);
    let after = create(false);
    assert_eq!((after.page(), after.slot()), (committed.page(), committed.slot() + 1));
}

#[test]
fn reserved_numbers_that_do_not_exist_are_an_error() {
    let mut allocator = PageAllocator::default();
    for first in [u64::MAX, PageId::MAX_NUMBER] {
        assert_eq!(allocator.add_reserved(NODES[0], first).unwrap_err().kind(), ErrorKind::Internal);
    }
}

/// Fills an open page of `node` to the last byte and returns it to the allocator.
fn fill_page(allocator: &mut PageAllocator, node: NodeId) -> PageId {
    let mut page = lease(allocator, &mut 0, Some(node), 10);
    let first = page.place(ClassId::NONE, 10);
    page.place(ClassId::NONE, PAGE_BYTES - 10 - 2 * OVERHEAD);
    allocator.release(page);
    first.page()
}

#[test]
fn page_is_full_when_objects_and_their_overhead_take_all_of_its_bytes() {
    let mut page = OpenPage { page: PageId { space: SPACE, node: NODES[0], number: 1 }, slot: 0, bytes: 0 };
    assert!(page.fits(2 * PAGE_BYTES), "the first object fits, whatever its size");
    page.place(ClassId::NONE, 100);
    let rest = PAGE_BYTES - 100 - 2 * OVERHEAD;
    assert!(page.fits(rest) && !page.fits(rest + 1));
    page.place(ClassId::NONE, rest);
    assert_eq!(page.bytes, PAGE_BYTES);
    assert!(!page.fits(0));
}

#[test]
fn objects_without_a_hint_go_to_the_next_node_when_pages_are_full_and_those_with_one_do_not() {
    let mut allocator = PageAllocator::default();
    let full = fill_page(&mut allocator, NODES[0]);
    let hinted = lease(&mut allocator, &mut 0, Some(NODES[0]), 10);
    assert!(hinted.page.node == NODES[0] && hinted.page != full, "{hinted:?}");
    let without_hint =
        |allocator: &mut PageAllocator| allocator.lease((SPACE, &NODES), &BTreeSet::new(), None, 10).unwrap();
    assert_eq!(without_hint(&mut allocator), Lease::NeedsNumbers(NODES[1]));
    assert_eq!(without_hint(&mut allocator), Lease::NeedsNumbers(NODES[1]), "it stays there until pages are full");
}

#[test]
fn fullest_pages_beyond_the_maximum_are_not_kept() {
    let (mut allocator, mut next) = (PageAllocator::default(), 0);
    let mut pages: Vec<OpenPage> =
        (0..=MAX_OPEN_PAGES).map(|_| lease(&mut allocator, &mut next, Some(NODES[0]), 10)).collect();
    for (number, page) in pages.iter_mut().enumerate() {
        page.place(ClassId::NONE, 10 * (number + 1));
    }
    let last = pages.pop().unwrap();
    pages.into_iter().for_each(|page| allocator.release(page));
    assert_eq!(allocator.open[&NODES[0]].len(), MAX_OPEN_PAGES);
    allocator.release(last);
    let open = &allocator.open[&NODES[0]];
    assert!(open.len() == MAX_OPEN_PAGES && !open.contains(&last));
}
