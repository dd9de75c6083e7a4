use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

/// Notes what it gets, and sends it back on another queue if it has one.
#[derive(Default)]
struct Notes {
    epochs: Mutex<Vec<u64>>,
    /// The number of messages that came together, each time.
    batches: Mutex<Vec<usize>>,
    /// Messages that are being handled. More than one is an error.
    handling: AtomicUsize,
    wakes: AtomicUsize,
    overruns: AtomicUsize,
    answers: Option<Arc<DirectQueue>>,
}

impl Receiver for Notes {
    fn receive(&self, deliveries: Vec<Delivery>) {
        assert_eq!(self.handling.fetch_add(1, Ordering::SeqCst), 0, "two threads handle messages of one queue");
        self.batches.lock().unwrap().push(deliveries.len());
        for arrived in deliveries {
            let Delivery::Message(SentMessage { message: Message::NotServedHere { epoch, .. }, .. }) = arrived else {
                panic!("{arrived:?}")
            };
            self.epochs.lock().unwrap().push(epoch);
            if let Some(answers) = &self.answers {
                assert!(answers.send(delivery(epoch)));
            }
        }
        self.handling.fetch_sub(1, Ordering::SeqCst);
    }

    fn wake(&self) {
        self.wakes.fetch_add(1, Ordering::SeqCst);
    }

    fn handle_overrun(&self) {
        self.overruns.fetch_add(1, Ordering::SeqCst);
    }
}

impl Notes {
    fn epochs(&self) -> Vec<u64> {
        self.epochs.lock().unwrap().clone()
    }

    fn wakes(&self) -> usize {
        self.wakes.load(Ordering::SeqCst)
    }
}

fn delivery(epoch: u64) -> Delivery {
    Delivery::Message(SentMessage {
        message: Message::NotServedHere { node: model::NodeId(1), epoch, damage: None },
        forced: None,
    })
}

fn open() -> (Arc<DirectQueue>, Arc<Notes>) {
    let (queue, notes) = (Arc::new(DirectQueue::default()), Arc::new(Notes::default()));
    queue.open(notes.clone());
    (queue, notes)
}

#[test]
fn messages_are_handed_over_when_the_outermost_scope_ends() {
    let (queue, notes) = open();
    let outer = DeliveryScope::enter();
    let inner = DeliveryScope::enter();
    assert!(queue.send(delivery(1)));
    drop(inner);
    assert!(queue.send(delivery(2)));
    assert!(notes.epochs().is_empty());
    drop(outer);
    assert_eq!((notes.epochs(), notes.wakes()), (vec![1, 2], 0));
}

#[test]
fn messages_that_wait_are_received_together_in_bounded_batches() {
    let (queue, notes) = open();
    let scope = DeliveryScope::enter();
    let sent: Vec<u64> = (1..=3 * MAX_BATCH as u64).collect();
    for epoch in &sent {
        assert!(queue.send(delivery(*epoch)));
    }
    drop(scope);
    assert_eq!(notes.epochs(), sent);
    assert_eq!(*notes.batches.lock().unwrap(), [MAX_BATCH; 3]);
    // A closed queue is emptied, however many messages wait.
    for epoch in &sent {
        assert!(queue.send(delivery(*epoch)));
    }
    queue.finish();
    assert_eq!(notes.epochs().len(), 2 * sent.len());
}

#[test]
fn answers_of_what_is_handed_over_are_handed_over_too() {
    let (back, answers) = open();
    let (there, notes) = (Arc::new(DirectQueue::default()), Notes { answers: Some(back), ..Notes::default() });
    there.open(Arc::new(notes));
    let scope = DeliveryScope::enter();
    for epoch in 1..=3 {
        there.send(delivery(epoch));
    }
    drop(scope);
    assert_eq!(answers.epochs(), [1, 2, 3]);
}

#[test]
fn task_of_the_receiver_is_woken_outside_of_scopes() {
    let (queue, notes) = open();
    for epoch in 1..=3 {
        assert!(queue.send(delivery(epoch)));
    }
    assert_eq!((notes.epochs(), notes.wakes()), (vec![], 1));
    queue.take_turn();
    assert_eq!((notes.epochs(), notes.wakes()), (vec![1, 2, 3], 1));
    assert!(queue.send(delivery(4)));
    assert_eq!(notes.wakes(), 2);
}

#[test]
fn messages_that_were_sent_before_the_receiver_existed_wake_it() {
    let (queue, notes) = (Arc::new(DirectQueue::default()), Arc::new(Notes::default()));
    let scope = DeliveryScope::enter();
    assert!(queue.send(delivery(1)));
    drop(scope);
    queue.open(notes.clone());
    assert_eq!(notes.wakes(), 1);
    queue.take_turn();
    assert_eq!(notes.epochs(), [1]);
}

#[test]
fn messages_of_several_threads_arrive_in_the_order_in_which_they_were_sent() {
    const EACH: u64 = 5_000;
    let (queue, notes) = open();
    let (sent, barrier) = (Mutex::new(0), Barrier::new(4));
    thread::scope(|threads| {
        for _ in 0..4 {
            threads.spawn(|| {
                barrier.wait();
                for _ in 0..EACH {
                    let _scope = DeliveryScope::enter();
                    // A machine sends with its lock held.
                    let mut number = sent.lock().unwrap();
                    *number += 1;
                    assert!(queue.send(delivery(*number)));
                }
            });
        }
    });
    // What a thread has left to the task.
    while notes.epochs().len() < 4 * EACH as usize {
        queue.take_turn();
    }
    assert_eq!(notes.epochs(), (1..=4 * EACH).collect::<Vec<_>>());
}

#[test]
fn one_scope_leaves_the_work_of_others_to_the_task() {
    let (queue, notes) = open();
    let most = MAX_HANDED_OVER as u64;
    let scope = DeliveryScope::enter();
    (1..=most + 10).for_each(|epoch| assert!(queue.send(delivery(epoch))));
    drop(scope);
    assert_eq!((notes.epochs().len() as u64, notes.wakes()), (most, 1));
    queue.take_turn();
    assert_eq!(notes.epochs().len() as u64, most + 10);
}

#[test]
fn receiver_that_finishes_gets_what_was_sent_before_and_no_more() {
    let (queue, notes) = open();
    assert!(queue.send(delivery(1)));
    queue.finish();
    assert_eq!(notes.epochs(), [1]);
    assert!(!queue.send(delivery(2)));
    assert_eq!(Arc::strong_count(&notes), 1, "the receiver is released");
    // A thread that is about to hand over does so, although the task has ended.
    let (queue, notes) = open();
    let scope = DeliveryScope::enter();
    assert!(queue.send(delivery(1)));
    queue.finish();
    assert!(notes.epochs().is_empty());
    drop(scope);
    assert_eq!((notes.epochs(), Arc::strong_count(&notes)), (vec![1], 1));
}

#[test]
fn receiver_that_is_closed_gets_nothing_more() {
    let (queue, notes) = open();
    let scope = DeliveryScope::enter();
    assert!(queue.send(delivery(1)));
    queue.close();
    drop(scope);
    assert!(!queue.send(delivery(2)));
    assert_eq!((notes.epochs(), Arc::strong_count(&notes)), (vec![], 1));
}

#[test]
fn receiver_that_has_stopped_is_told_when_too_many_messages_wait() {
    let (queue, notes) = open();
    (0..MAX_QUEUED as u64).for_each(|epoch| assert!(queue.send(delivery(epoch))));
    assert_eq!(notes.overruns.load(Ordering::SeqCst), 0);
    assert!(!queue.send(delivery(0)));
    assert_eq!(notes.overruns.load(Ordering::SeqCst), 1);
}
