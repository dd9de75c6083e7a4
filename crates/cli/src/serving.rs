//! The log and the signals of commands that serve.

use std::io::{self, IsTerminal};

use clap::ValueEnum;
use serde::Deserialize;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::layer;
use tracing_subscriber::prelude::*;
use wire::tasks;

use crate::failure::{Failure, Result};

/// How the log looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    /// Lines for a person
    #[default]
    Text,
    /// One JSON object on a line
    Json,
}

/// Starts the log on the error stream, at the level of `MORTAR_LOG` or else of `wanted`.
pub(crate) fn start_log(wanted: Option<&str>, format: LogFormat) -> Result {
    let (from, wanted) = match std::env::var("MORTAR_LOG") {
        Ok(text) => ("MORTAR_LOG", text),
        Err(_) => ("log", wanted.unwrap_or("info").to_owned()),
    };
    let filter: Targets = wanted
        .parse()
        .map_err(|e| Failure::usage(format!("{from}={wanted}: {e}")).hint("For example info, or warn,store=debug."))?;
    let log = tracing_subscriber::registry().with(filter);
    match format {
        LogFormat::Text => log.with(layer().with_writer(io::stderr).with_ansi(io::stderr().is_terminal())).init(),
        LogFormat::Json => log.with(layer().with_writer(io::stderr).json().flatten_event(true)).init(),
    }
    Ok(())
}

/// The signals that end a server: Ctrl-C and SIGTERM.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// Registers handlers for the signals.
    pub(crate) fn listen() -> Result<Self> {
        let cannot = |error| Failure::file("cannot listen for signals", &error);
        let interrupt = signal(SignalKind::interrupt()).map_err(cannot)?;
        Ok(Self { interrupt, terminate: signal(SignalKind::terminate()).map_err(cannot)? })
    }

    /// Waits for one of the signals.
    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// Calls a function at each SIGHUP, which then does not end the process.
pub(crate) fn on_hangup(mut act: impl FnMut() + Send + 'static) -> Result {
    let mut hangup =
        signal(SignalKind::hangup()).map_err(|error| Failure::file("cannot listen for signals", &error))?;
    tasks::spawn(async move {
        while hangup.recv().await.is_some() {
            act();
        }
    });
    Ok(())
}
