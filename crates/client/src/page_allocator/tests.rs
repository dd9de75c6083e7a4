use super::*;
use model::planted_bug::assert_noticed;

const SPACE: SpaceId = SpaceId(1);
const NODES: [NodeId; 3] = [NodeId(1), NodeId(2), NodeId(3)];

/// Leases a page; page numbers are reserved as they are needed, from `next` on.
fn lease(allocator: &mut PageAllocator, next: &mut u64, node: NodeId, len: usize) -> OpenPage {
    match allocator.lease(SPACE, node, len) {
        Lease::Page(page) => page,
        Lease::NeedsNumbers => {
            allocator.add_reserved(SPACE, node, ReservedPages::empty(*next, RESERVED_PAGES));
            *next += u64::from(RESERVED_PAGES);
            allocator.take_new(SPACE, node).unwrap()
        }
    }
}

/// Transactions that overlap create objects, and are committed or not, at random. From time to time the client is closed, with
/// transactions that may be committed, and the next one gets its pages. No slot is given to two objects that exist.
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
    for step in 0..3_000 {
        if step % 100 == 99 {
            let returned = std::mem::take(&mut allocator).take_all();
            for (node, range) in
                returned.into_iter().flat_map(|(node, pages)| pages.into_iter().map(move |it| (node, it)))
            {
                // Another client may get fewer pages at a time than there are.
                if allocator.reserved.get(&node).is_none_or(|reserved| reserved.is_empty()) {
                    allocator.add_reserved(SPACE, node, range);
                }
            }
            for oid in running.drain(..).flat_map(|(_, created)| created) {
                assert!(committed.insert(oid), "{oid} was given to two objects");
            }
        }
        if running.len() < 4 {
            running.push(Default::default());
        }
        let at = number(running.len() as u64) as usize;
        let (leased, created) = &mut running[at];
        let (node, len) = (NODES[number(3) as usize], number(3_000) as usize);
        if leased.open_page(node, len).is_none() {
            let page = lease(&mut allocator, &mut next, node, len);
            leased.add(page);
        }
        created.push(leased.open_page(node, len).unwrap().place(ClassId::NONE, len));
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
    let bugs = [Bug::LeasedPageReused, Bug::PageNumberReused, Bug::ReturnedSlotsForgotten];
    assert_noticed(&bugs, committed_objects_have_slots_of_their_own);
}

#[test]
fn leased_page_is_open_only_under_its_number_and_for_objects_that_fit() {
    let (mut leased, mut next) = (PageLease::default(), 0);
    let leased_page = lease(&mut PageAllocator::default(), &mut next, NODES[0], 100);
    leased.add(leased_page);
    let page = leased_page.page();
    leased.open_page_at(page, 100).expect("it is leased").place(ClassId::NONE, 100);
    assert!(leased.open_page_at(page, model::limits::OBJECT).is_none());
    assert!(leased.open_page_at(PageId { number: page.number + 1, ..page }, 100).is_none());
}

#[test]
fn homes_avoid_unreachable_logical_nodes() {
    let mut allocator = PageAllocator::default();
    let unreachable = [NODES[0], NODES[1]].into();
    assert_eq!(allocator.home(&NODES, &unreachable).unwrap(), NODES[2]);
    assert!(NODES.contains(&allocator.home(&NODES, &NODES.into()).unwrap()), "if none is reachable, any is as good");
    assert_eq!(allocator.home(&[], &unreachable).unwrap_err().kind(), ErrorKind::Unavailable);
}

#[test]
fn homes_leave_damaged_logical_nodes_until_all_others_were_filled() {
    let (mut allocator, unavailable) = (PageAllocator::default(), BTreeSet::new());
    let home = |allocator: &mut PageAllocator| allocator.home(&NODES, &BTreeSet::new()).unwrap();
    assert_eq!(home(&mut allocator), NODES[0]);
    assert_eq!(allocator.home_instead(&NODES, NODES[0], &unavailable).unwrap(), Some(NODES[1]));
    assert_eq!(home(&mut allocator), NODES[1]);
    let mut last = NODES[1];
    for node in &NODES[2..] {
        fill_page(&mut allocator, last);
        last = home(&mut allocator);
        assert_eq!(last, *node);
    }
    // It is passed over when the client begins with the first one again, and tried the next time.
    let mut homes = Vec::new();
    for _ in 0..2 * NODES.len() {
        fill_page(&mut allocator, last);
        last = home(&mut allocator);
        homes.push(last);
    }
    assert!(homes[0] == NODES[1] && homes.contains(&NODES[0]), "{homes:?}");
}

#[test]
fn search_for_another_home_ends_and_a_repaired_logical_node_is_used_again() {
    let unavailable = BTreeSet::new();
    for count in 1..=NODES.len() {
        let nodes = &NODES[..count];
        for begin in 0..count {
            let mut allocator = PageAllocator { current: begin, ..PageAllocator::default() };
            let mut tried = vec![nodes[begin]];
            while let Some(other) = allocator.home_instead(nodes, tried[tried.len() - 1], &unavailable).unwrap() {
                tried.push(other);
                assert!(tried.len() <= 3 * count, "{tried:?}");
            }
            assert!(nodes.iter().all(|node| tried.contains(node)), "{tried:?}");
            // All are whole again.
            let mut homes = BTreeSet::new();
            for _ in 0..3 * count {
                let home = allocator.home(nodes, &unavailable).unwrap();
                homes.insert(home);
                fill_page(&mut allocator, home);
            }
            assert_eq!(homes.len(), count, "from {begin}");
        }
    }
}

#[test]
fn clients_begin_at_different_logical_nodes() {
    let nodes: Vec<NodeId> = (0..8).map(NodeId).collect();
    // Numbers of clients have gaps, if a client takes several.
    for stride in 1..=8 {
        let mut clients = BTreeMap::<NodeId, u32>::new();
        for number in (0..256).map(|n| 1 + n * stride) {
            let source = PageSource::new(ClientId(number));
            *clients.entry(source.lock().home(&nodes, &BTreeSet::new()).unwrap()).or_default() += 1;
        }
        assert!(nodes.iter().all(|node| (16..=48).contains(clients.get(node).unwrap_or(&0))), "{stride}: {clients:?}");
    }
}

#[test]
fn transaction_that_is_not_committed_leaves_no_gap() {
    let (mut allocator, mut next) = (PageAllocator::default(), 0);
    let mut create = |is_unused| {
        let mut leased = PageLease::default();
        let page = lease(&mut allocator, &mut next, NODES[0], 100);
        leased.add(page);
        let oid = leased.open_page(NODES[0], 100).unwrap().place(ClassId::NONE, 100);
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
fn next_client_fills_the_pages_of_a_closed_one() {
    let (mut first, mut next) = (PageAllocator::default(), 40);
    let mut page = lease(&mut first, &mut next, NODES[0], 100);
    page.place(ClassId::NONE, 100);
    first.release(page);
    fill_page(&mut first, NODES[1]);
    let leased = lease(&mut first, &mut next, NODES[2], 100);
    let returned = first.take_all();
    let room = (PAGE_BYTES - 100 - OVERHEAD) as u32;
    let begun = ReservedPages { first: 40, pages: 1, slot: 1, room };
    assert_eq!(returned[&NODES[0]], [begun, ReservedPages::empty(41, RESERVED_PAGES - 1)]);
    assert_eq!(returned[&NODES[1]], [ReservedPages::empty(1, RESERVED_PAGES - 1)], "its first page has no room");
    let unused = ReservedPages::empty(leased.page.number + 1, RESERVED_PAGES - 1);
    assert_eq!(returned[&NODES[2]], [unused], "a transaction may still fill the first page");
    assert!(first.take_all().values().all(Vec::is_empty), "all are returned once");

    let mut second = PageAllocator::default();
    second.add_reserved(SPACE, NODES[0], begun);
    let Lease::Page(mut page) = second.lease(SPACE, NODES[0], room as usize - OVERHEAD) else {
        panic!("the page has room");
    };
    let oid = page.place(ClassId::NONE, 100);
    assert_eq!((oid.page().number, oid.slot()), (40, 1));
    assert_eq!(second.lease(SPACE, NODES[0], 100), Lease::NeedsNumbers);
}

#[test]
fn page_that_the_server_reserves_twice_is_filled_no_further() {
    let mut allocator = PageAllocator::default();
    let begun = ReservedPages { slot: 3, room: 4_000, ..ReservedPages::empty(7, 1) };
    let leases: Vec<OpenPage> = (0..2)
        .map(|_| {
            allocator.add_reserved(SPACE, NODES[0], begun);
            allocator.take_open(NODES[0], 10).unwrap()
        })
        .collect();
    leases.into_iter().for_each(|page| allocator.release(page));
    assert_eq!(allocator.lease(SPACE, NODES[0], 10), Lease::NeedsNumbers);
}

/// Fills an open page of `node` to the last byte and returns it to the allocator.
fn fill_page(allocator: &mut PageAllocator, node: NodeId) -> PageId {
    let mut page = lease(allocator, &mut 0, node, 10);
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
fn home_changes_when_a_transaction_has_filled_a_page() {
    let mut allocator = PageAllocator::default();
    let home = |allocator: &mut PageAllocator| allocator.home(&NODES, &BTreeSet::new()).unwrap();
    assert_eq!((home(&mut allocator), home(&mut allocator)), (NODES[0], NODES[0]));
    let mut page = lease(&mut allocator, &mut 0, NODES[0], 10);
    page.place(ClassId::NONE, 10);
    allocator.release(page);
    assert_eq!(home(&mut allocator), NODES[0], "the page has room");
    let full = fill_page(&mut allocator, NODES[0]);
    let next = lease(&mut allocator, &mut 0, NODES[0], 10);
    assert!(next.page.node == NODES[0] && next.page != full, "a transaction does not change its home: {next:?}");
    assert_eq!((home(&mut allocator), home(&mut allocator)), (NODES[1], NODES[1]));
    fill_page(&mut allocator, NODES[1]);
    fill_page(&mut allocator, NODES[2]);
    assert_eq!(home(&mut allocator), NODES[2], "once for each transaction that begins");
}

#[test]
fn fullest_pages_beyond_the_maximum_are_not_kept() {
    let (mut allocator, mut next) = (PageAllocator::default(), 0);
    let mut pages: Vec<OpenPage> =
        (0..=MAX_OPEN_PAGES).map(|_| lease(&mut allocator, &mut next, NODES[0], 10)).collect();
    for (number, page) in pages.iter_mut().enumerate() {
        page.place(ClassId::NONE, 10 * (number + 1));
    }
    let (fullest, emptiest) = (pages[MAX_OPEN_PAGES], pages.remove(0));
    pages.into_iter().for_each(|page| allocator.release(page));
    assert_eq!(allocator.open[&NODES[0]].len(), MAX_OPEN_PAGES);
    allocator.release(emptiest);
    let open = &allocator.open[&NODES[0]];
    assert!(open.len() == MAX_OPEN_PAGES && open.contains(&emptiest) && !open.contains(&fullest));
}
