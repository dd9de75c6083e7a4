//! Messages up and down a cache tree.

use bytes::Bytes;
use model::{NodeId, Object, PageId, Result};
use protocol::ident::{HolderId, Version};
use protocol::page_cache::{FetchId, FetchReply, Invalidation, PageImage};
use protocol::tree::{Down, Up};
use protocol::update_digest::UpdateDigest;

use super::ids;
use super::states::{self, Data};
use super::verdict;
use crate::convert::{invalid, missing};
use crate::proto::cluster as proto;
use crate::proto::cluster::down::Down as DownMessage;
use crate::proto::cluster::up::Up as UpMessage;

pub(super) fn up_to_proto(up: &Up<Object>, raw: &mut Vec<Bytes>) -> UpMessage {
    match up {
        Up::Renew { asked, wanted_ms, open, sync, subscribe, height, replaces } => UpMessage::Renew(proto::Renew {
            asked: *asked,
            wanted_ms: *wanted_ms,
            open: *open,
            sync: *sync,
            subscribe: *subscribe,
            height: u32::from(*height),
            replaces: replaces.map(|holder| holder.0),
        }),
        Up::Fetch { page, fetch, have } => {
            UpMessage::Fetch(proto::Fetch { page: Some((*page).into()), fetch: fetch.0, have: have.map(Into::into) })
        }
        Up::Acknowledge { page, version } => {
            UpMessage::Acknowledge(proto::Acknowledge { page: Some((*page).into()), version: Some((*version).into()) })
        }
        Up::Evict { page, fetch } => UpMessage::Evict(proto::Evict { page: Some((*page).into()), fetch: fetch.0 }),
        Up::Helped { page, help, copy } => UpMessage::Helped(proto::Helped {
            page: Some((*page).into()),
            help: help.0,
            copy: copy.as_ref().map(|copy| copy_to_proto(copy, raw)),
        }),
        Up::Write { write, writes } => UpMessage::Write(proto::Write {
            write: Some((*write).into()),
            writes: states::writes_to_proto(writes.iter(), raw),
        }),
    }
}

pub(super) fn up(up: UpMessage, node: NodeId, data: &mut Data<'_>) -> Result<Up<Object>> {
    let page = |field| ids::page(field, node);
    Ok(match up {
        UpMessage::Renew(renew) => Up::Renew {
            asked: ids::ms(renew.asked)?,
            wanted_ms: ids::ms(renew.wanted_ms)?,
            open: renew.open,
            sync: renew.sync,
            subscribe: renew.subscribe,
            height: u8::try_from(renew.height)
                .map_err(|_| invalid(format!("a cache tree has height {}", renew.height)))?,
            replaces: renew.replaces.map(HolderId),
        },
        UpMessage::Fetch(fetch) => {
            Up::Fetch { page: page(fetch.page)?, fetch: FetchId(fetch.fetch), have: ids::optional_version(fetch.have)? }
        }
        UpMessage::Acknowledge(acknowledge) => {
            Up::Acknowledge { page: page(acknowledge.page)?, version: ids::version(acknowledge.version)? }
        }
        UpMessage::Evict(evict) => Up::Evict { page: page(evict.page)?, fetch: FetchId(evict.fetch) },
        UpMessage::Helped(helped) => Up::Helped {
            page: page(helped.page)?,
            help: FetchId(helped.help),
            copy: helped.copy.map(|found| copy(found, data)).transpose()?,
        },
        UpMessage::Write(write) => {
            Up::Write { write: ids::txn(write.write)?, writes: states::writes(write.writes, data)? }
        }
    })
}

fn copy_to_proto(copy: &PageImage<Object>, raw: &mut Vec<Bytes>) -> proto::Copy {
    proto::Copy {
        version: Some(copy.version.into()),
        timestamp: copy.timestamp.0,
        objects: states::objects_to_proto(&copy.objects, raw),
    }
}

fn copy(copy: proto::Copy, data: &mut Data<'_>) -> Result<PageImage<Object>> {
    Ok(PageImage {
        version: ids::version(copy.version)?,
        timestamp: ids::timestamp(copy.timestamp)?,
        objects: states::objects(copy.objects, data)?,
    })
}

pub(super) fn down_to_proto(down: &Down<Object>, raw: &mut Vec<Bytes>) -> DownMessage {
    match down {
        Down::Leased { asked, lease_ms, sync } => {
            DownMessage::Leased(proto::Leased { asked: *asked, lease_ms: *lease_ms, sync: *sync })
        }
        Down::Closed => DownMessage::Closed(proto::Nothing {}),
        Down::Fetched { page, fetch, reply } => {
            let reply = match reply {
                FetchReply::Page(copy) => proto::fetched::Reply::Copy(copy_to_proto(copy, raw)),
                FetchReply::Current => proto::fetched::Reply::Current(proto::Nothing {}),
                FetchReply::Stale => proto::fetched::Reply::Stale(proto::Nothing {}),
                FetchReply::Damaged(why) => proto::fetched::Reply::Damaged(why.clone()),
            };
            DownMessage::Fetched(proto::Fetched { page: Some((*page).into()), fetch: fetch.0, reply: Some(reply) })
        }
        Down::Invalidate { message, contents } => DownMessage::Invalidate(proto::Invalidate {
            page: Some(message.page.into()),
            slots: message.slots.iter().map(|slot| u32::from(*slot)).collect(),
            previous: Some(message.previous.into()),
            version: Some(message.version.into()),
            timestamp: message.timestamp.0,
            txn: Some(message.txn.into()),
            contents: contents.as_ref().and_then(|contents| states::contents_to_proto(contents, raw)),
            digest: message.digest.map_or_else(Bytes::new, |digest| Bytes::copy_from_slice(&digest.0)),
        }),
        Down::Help { page, help } => DownMessage::Help(proto::Help { page: Some((*page).into()), help: help.0 }),
        Down::Close { at } => DownMessage::Close(proto::Close { at: at.0 }),
        Down::Written { write, result } => DownMessage::Written(proto::Written {
            write: Some((*write).into()),
            result: Some(verdict::verdict_to_proto(*result)),
        }),
        Down::Settled { write } => DownMessage::Settled(proto::Settled { write: Some((*write).into()) }),
    }
}

pub(super) fn down(down: DownMessage, node: NodeId, data: &mut Data<'_>) -> Result<Down<Object>> {
    Ok(match down {
        DownMessage::Leased(leased) => {
            Down::Leased { asked: ids::ms(leased.asked)?, lease_ms: ids::ms(leased.lease_ms)?, sync: leased.sync }
        }
        DownMessage::Closed(_) => Down::Closed,
        DownMessage::Fetched(fetched) => {
            let page = ids::page(fetched.page, node)?;
            let reply = match fetched.reply.ok_or_else(|| missing("answer to the fetch"))? {
                proto::fetched::Reply::Copy(found) => FetchReply::Page(copy(found, data)?),
                proto::fetched::Reply::Current(_) => FetchReply::Current,
                proto::fetched::Reply::Stale(_) => FetchReply::Stale,
                proto::fetched::Reply::Damaged(why) => FetchReply::Damaged(why),
            };
            Down::Fetched { page, fetch: FetchId(fetched.fetch), reply }
        }
        DownMessage::Invalidate(message) => {
            let page = ids::page(message.page, node)?;
            invalidate(message, page, data)?
        }
        DownMessage::Help(help) => Down::Help { page: ids::page(help.page, node)?, help: FetchId(help.help) },
        DownMessage::Close(close) => Down::Close { at: ids::timestamp(close.at)? },
        DownMessage::Written(written) => {
            Down::Written { write: ids::txn(written.write)?, result: verdict::verdict(written.result)? }
        }
        DownMessage::Settled(settled) => Down::Settled { write: ids::txn(settled.write)? },
    })
}

fn invalidate(message: proto::Invalidate, page: PageId, data: &mut Data<'_>) -> Result<Down<Object>> {
    if !message.slots.is_sorted_by(|one, next| one < next) {
        return Err(invalid("the slots of an invalidation are out of order, or repeated"));
    }
    let slots = message.slots.into_iter().map(ids::slot).collect::<Result<_>>()?;
    let (previous, version): (Version, Version) = (ids::version(message.previous)?, ids::version(message.version)?);
    if previous >= version {
        return Err(invalid("an invalidation does not lead to a later version"));
    }
    let timestamp = ids::timestamp(message.timestamp)?;
    let txn = ids::txn(message.txn)?;
    let message_contents = message.contents.map(|list| states::contents(list, data)).transpose()?;
    let digest = match message.digest.len() {
        0 => None,
        _ => Some(UpdateDigest(message.digest.as_ref().try_into().map_err(|_| invalid("a digest has 32 bytes"))?)),
    };
    let message = Invalidation { page, slots, previous, version, timestamp, txn, digest };
    Ok(Down::Invalidate { message, contents: message_contents })
}
