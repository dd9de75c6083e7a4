//! The native half of the Java client: [`client::Client`] behind five functions.
//!
//! The Java half (`java/client`) encodes a request, calls `call` with the number of an operation and the handle of what it is done
//! with, and decodes the reply. So the bytes of objects cross once, many objects in one crossing, and no Java object is touched here.
//!
//! 1. Whatever Java passes, nothing here crashes the virtual machine: handles are numbers, messages are checked, and a panic is an
//!    error of the call.
//! 2. A platform thread waits in `call`. A virtual thread calls `start`, which does not wait, and is unparked when one thread of the
//!    Java half has received the reply from `completed`: so no waiting virtual thread pins its carrier.
//! 3. A call that does not have to wait, such as a read of a cached object, is finished by the thread that makes it.

mod handles;
mod message;
mod name_listing;
mod objects;
mod operation;
mod operations;
mod replies;
mod schema;

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::LazyLock;

use client::blocking;
use jni::errors::LogErrorAndDefault;
use jni::objects::{JByteArray, JClass};
use jni::sys::{jint, jlong};
use jni::{EnvUnowned, Outcome};
use model::{Error, ErrorKind, Result};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinError;

use handles::{Handles, Resource};
use message::{Reader, Writer};
use operation::Operation;
use replies::{Completed, encode_reply};

/// A call makes and frees a few dozen small blocks.
#[global_allocator]
static ALLOCATOR: allocator::SwitchingAllocator = allocator::SwitchingAllocator;

/// Everything that the Java half has.
#[derive(Debug)]
struct Native {
    /// Has the connections of all clients. One thread: a second one would be woken with the first, and would find nothing to do.
    connections: Runtime,
    handles: Handles,
    completed: Completed,
}

/// One for the process: the virtual machine does not unload the library.
static NATIVE: LazyLock<std::io::Result<Native>> = LazyLock::new(|| {
    let connections = start_runtime("mortar-client", 1)?;
    Ok(Native { connections, handles: Handles::default(), completed: Completed::default() })
});

/// Performs the operations of virtual threads. A program without any does not start it.
static CALLS: LazyLock<std::io::Result<Runtime>> = LazyLock::new(|| start_runtime("mortar-calls", 2));

fn start_runtime(name: &str, threads: usize) -> std::io::Result<Runtime> {
    Builder::new_multi_thread().worker_threads(threads).thread_name(name).enable_all().build()
}

fn threads_error(error: &std::io::Error) -> Error {
    Error::new(ErrorKind::Io, format!("the client's threads cannot be started: {error}"))
}

fn native() -> Result<&'static Native> {
    NATIVE.as_ref().map_err(threads_error)
}

/// The threads that perform an operation for a virtual thread. The tasks of a client's connection run where the client was made.
fn runtime_of(native: &'static Native, operation: i32) -> Result<&'static Runtime> {
    match Operation::from_code(operation) {
        Ok(Operation::ClientLife(_)) => Ok(&native.connections),
        _ => CALLS.as_ref().map_err(threads_error),
    }
}

/// What a panic says.
fn panic_error(panic: &(dyn Any + Send)) -> Error {
    let text = panic.downcast_ref::<&str>().copied();
    let text =
        text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("a panic without a message");
    Error::new(ErrorKind::Internal, format!("the native part of the client has failed: {text}"))
}

/// Why a task has ended without a result.
fn ended_error(ended: JoinError) -> Error {
    match ended.try_into_panic() {
        Ok(panic) => panic_error(&*panic),
        Err(_) => Error::new(ErrorKind::Internal, "the call was cancelled"),
    }
}

/// Performs an operation. Returns the encoded reply.
async fn perform(handle: i64, operation: i32, request: Vec<u8>) -> Result<Vec<u8>> {
    let native = native()?;
    let (mut request, mut reply) = (Reader::new(request), Writer::default());
    replies::begin_success(&mut reply);
    let operation = Operation::from_code(operation)?;
    operations::perform(&native.handles, handle as u64, operation, &mut request, &mut reply).await?;
    request.end()?;
    Ok(reply.into_bytes())
}

/// Performs an operation and waits for its end.
fn perform_and_wait(handle: i64, operation: i32, request: Vec<u8>) -> Vec<u8> {
    let wait = || blocking::wait(&native()?.connections, perform(handle, operation, request));
    encode_reply(catch_unwind(AssertUnwindSafe(wait)).unwrap_or_else(|panic| Err(panic_error(&*panic))))
}

/// Begins an operation, whose reply is pushed to the queue.
///
/// # Errors
/// [`ErrorKind::Io`] if the threads for it cannot be started.
fn start(native: &'static Native, call: u64, handle: i64, operation: i32, request: Vec<u8>) -> Result<()> {
    let runtime = runtime_of(native, operation)?;
    let performed = runtime.spawn(perform(handle, operation, request));
    runtime.spawn(async move {
        let reply = performed.await.unwrap_or_else(|ended| Err(ended_error(ended)));
        native.completed.push(call, encode_reply(reply));
    });
    Ok(())
}

/// Frees a handle, and ends its resource if no call uses it.
fn release(handle: i64) {
    let Ok(native) = native() else { return };
    // Some resources tell servers of their end, by tasks of the runtime.
    let _entered = native.connections.enter();
    match native.handles.remove(handle as u64) {
        Some(Resource::Client(client)) => client.close(),
        Some(Resource::Transaction(transaction)) => transaction.abort(),
        Some(Resource::Events(events)) => events.release(),
        Some(Resource::Watch(watch)) => watch.release(),
        other => drop(other),
    }
}

// ---------------------------------------------------------------------------------------------- io.mortar.Native

// The jni crate clears the exceptions of the virtual machine, so no function here throws one.

/// `static native byte[] call(long handle, int operation, byte[] request)`: performs an operation and waits for its end. Null if the
/// virtual machine has no memory for the reply.
#[unsafe(no_mangle)]
pub extern "system" fn Java_io_mortar_Native_call<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    handle: jlong,
    operation: jint,
    request: JByteArray<'local>,
) -> JByteArray<'local> {
    let outcome = env.with_env(|env| {
        let request = env.convert_byte_array(&request)?;
        env.byte_array_from_slice(&perform_and_wait(handle, operation, request))
    });
    outcome.resolve::<LogErrorAndDefault>()
}

/// `static native void start(long call, long handle, int operation, byte[] request)`: begins an operation. `completed` has its reply,
/// under the number of the call.
#[unsafe(no_mangle)]
pub extern "system" fn Java_io_mortar_Native_start<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
    call: jlong,
    handle: jlong,
    operation: jint,
    request: JByteArray<'local>,
) {
    // Without threads for connections `completed` says so.
    let Ok(native) = native() else { return };
    let started = env.with_env(|env| -> jni::errors::Result<Result<()>> {
        let request = env.convert_byte_array(&request)?;
        Ok(start(native, call as u64, handle, operation, request))
    });
    let error = match started.into_outcome() {
        Outcome::Ok(Ok(())) => return,
        Outcome::Ok(Err(error)) => error,
        Outcome::Err(error) => Error::new(ErrorKind::Internal, format!("a request cannot be read: {error}")),
        Outcome::Panic(panic) => panic_error(&*panic),
    };
    // The caller waits for a reply in any case.
    native.completed.push(call as u64, encode_reply(Err(error)));
}

/// `static native byte[] completed()`: waits for replies of calls that were started. Empty if none will come; null if the virtual machine
/// has no memory at all now, and then the next call returns the replies.
#[unsafe(no_mangle)]
pub extern "system" fn Java_io_mortar_Native_completed<'local>(
    mut env: EnvUnowned<'local>,
    _class: JClass<'local>,
) -> JByteArray<'local> {
    let outcome = env.with_env(|env| match native() {
        Ok(native) => native.completed.deliver(|batch| env.byte_array_from_slice(batch)),
        Err(_) => env.byte_array_from_slice(&[]),
    });
    outcome.resolve::<LogErrorAndDefault>()
}

/// `static native void release(long handle)`: frees a handle; it may be free already. An open transaction is aborted, a client closed.
#[unsafe(no_mangle)]
pub extern "system" fn Java_io_mortar_Native_release<'local>(
    _env: EnvUnowned<'local>,
    _class: JClass<'local>,
    handle: jlong,
) {
    // A panic must not reach the virtual machine. What has panicked is free all the same.
    let _ = catch_unwind(|| release(handle));
}

/// `static native long handles()`: the number of handles that were not freed.
#[unsafe(no_mangle)]
pub extern "system" fn Java_io_mortar_Native_handles<'local>(
    _env: EnvUnowned<'local>,
    _class: JClass<'local>,
) -> jlong {
    native().map_or(0, |native| native.handles.len() as jlong)
}

#[cfg(test)]
mod tests;
