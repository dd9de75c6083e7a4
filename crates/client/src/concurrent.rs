//! Requests that wait for their answers together.

use std::future::{Future, poll_fn};
use std::task::Poll;

use model::Result;

/// Requests that are sent before the first one is answered.
const AT_ONCE: usize = 64;

/// Starts a request for each item, [`AT_ONCE`] at a time, and returns what they return, in the order of the items.
///
/// # Errors
/// The first error. The requests that have not ended are dropped then.
pub(super) async fn concurrently<'a, T, R, F>(items: &'a [T], mut start: impl FnMut(&'a T) -> F) -> Result<Vec<R>>
where
    F: Future<Output = Result<R>>,
{
    let mut results = Vec::with_capacity(items.len());
    for some in items.chunks(AT_ONCE) {
        results.extend(all(some.iter().map(&mut start)).await?);
    }
    Ok(results)
}

/// Polls all futures until each has ended, or one has failed.
async fn all<R, F: Future<Output = Result<R>>>(futures: impl Iterator<Item = F>) -> Result<Vec<R>> {
    let mut pending: Vec<_> = futures.map(Box::pin).enumerate().collect();
    let mut results: Vec<Option<R>> = pending.iter().map(|_| None).collect();
    let mut ended = Ok(());
    poll_fn(|context| {
        pending.retain_mut(|(index, one)| match one.as_mut().poll(context) {
            Poll::Ready(Ok(result)) => {
                results[*index] = Some(result);
                false
            }
            Poll::Ready(Err(error)) if ended.is_ok() => {
                ended = Err(error);
                false
            }
            Poll::Ready(Err(_)) => false,
            Poll::Pending => true,
        });
        if pending.is_empty() || ended.is_err() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    ended.map(|()| results.into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::ready;

    use model::{Error, ErrorKind};
    use tokio::task::yield_now;

    use super::*;

    #[tokio::test]
    async fn results_have_the_order_of_the_items_and_a_bounded_number_waits() {
        let (waiting, most) = (Cell::new(0), Cell::new(0));
        let items: Vec<usize> = (0..3 * AT_ONCE + 1).collect();
        let doubled = concurrently(&items, |item| {
            let (waiting, most) = (&waiting, &most);
            async move {
                waiting.set(waiting.get() + 1);
                most.set(most.get().max(waiting.get()));
                for _ in 0..item % 5 {
                    yield_now().await;
                }
                waiting.set(waiting.get() - 1);
                Ok(2 * item)
            }
        });
        let expected: Vec<usize> = items.iter().map(|item| 2 * item).collect();
        assert_eq!(doubled.await.unwrap(), expected);
        // Those that wait for nothing have ended before the last one begins.
        assert_eq!(most.get(), AT_ONCE - AT_ONCE.div_ceil(5));
    }

    #[tokio::test]
    async fn first_error_ends_the_requests() {
        let begun = Cell::new(0);
        let items: Vec<usize> = (0..2 * AT_ONCE).collect();
        let failed = concurrently(&items, |item| {
            begun.set(begun.get() + 1);
            ready(if *item == 3 { Err(Error::new(ErrorKind::Full, "no room")) } else { Ok(()) })
        });
        assert_eq!(failed.await.unwrap_err().kind(), ErrorKind::Full);
        assert_eq!(begun.get(), AT_ONCE);
    }
}
