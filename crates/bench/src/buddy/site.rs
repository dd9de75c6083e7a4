//! A store with the OO7 database, and sites of clients: a link to the store, and perhaps a redirector.

use std::process::Command;
use std::time::{Duration, Instant};

use client::{AdminClient, Client, IsolationLevel, Ref};
use relay::{Config, Counters, LinkConfig, Relay};
use wire::proto::groups::Counts;

use crate::Result;
use crate::mortar::server::{Engine, MortarServer, binary, runtime};
use crate::oo7::design::{Design, Size};
use crate::oo7::load::load;
use crate::oo7::model::Module;
use crate::oo7::objects::Objects as _;
use crate::oo7::space::Space;
use crate::process::{Address, Server};
use crate::progress;
use crate::run::Run;

/// The longest time until a redirector serves.
const START_TIMEOUT: Duration = Duration::from_secs(20);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// How often a redirector says what it has done, with a reserve.
const REPORT_INTERVAL: Duration = Duration::from_millis(1500);

/// How much data there is, and how many transactions each client runs: the paper's, or a part of both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Scale {
    pub(super) composite_parts: usize,
    /// Of each client.
    pub(super) transactions: usize,
}

impl Scale {
    /// A fifth of the paper's: 100 composite parts, and 200 transactions. A twentieth in a quick run.
    pub(super) fn new(run: &Run) -> Self {
        let divisor = run.choose(5, 20);
        Self { composite_parts: 500 / divisor, transactions: 1_000 / divisor }
    }

    /// A module of the medium size of OO7 with this number of composite parts.
    fn design(self) -> Design {
        let medium = Design::new(Size::Medium, 1);
        // A tree of 243 base assemblies: about seven uses of each of a hundred composite parts, the paper's about four.
        Design { composite_parts: self.composite_parts, levels: 6, ..medium }
    }

    pub(super) fn text(self) -> String {
        format!(
            "one module of OO7 with {} composite parts of 200 atomic parts (the paper: 500), {} transactions a client (the paper: 1,000), \
             so each client misses as many pages in a transaction as the paper's; one run of each",
            self.composite_parts, self.transactions
        )
    }
}

/// A server with the database.
pub(super) struct Store {
    server: MortarServer,
    pub(super) module: Ref<Module>,
}

/// Clients at one place reach the store over one link.
pub(super) struct Site {
    pub(super) url: String,
    pub(super) redirector: Option<Redirector>,
    relay: Relay,
}

/// A redirector of the site's group.
pub(super) struct Redirector {
    _server: Server,
    pub(super) address: Address,
    group: String,
    /// Of the store, not over the link.
    store_url: String,
}

impl Store {
    /// Starts a server with its defaults on a directory, and loads the database.
    pub(super) fn start(run: &Run, scale: Scale) -> Result<Self> {
        let server = MortarServer::start(run, Engine::Durable)?;
        let module = runtime()?.block_on(async {
            let space = Space::new(Client::connect(&server.url()).await?, false);
            space.define().await?;
            let begun = Instant::now();
            load(&space, &scale.design(), |_, _| {}).await?;
            progress::line(format_args!("buddy: loaded in {:.1?}", begun.elapsed()));
            space.begin(IsolationLevel::Optimistic).module(1).await
        })?;
        Ok(Self { server, module })
    }

    /// A site without a redirector.
    pub(super) fn site(&self, round_trip: Duration) -> Result<Site> {
        let link = LinkConfig { delay: round_trip / 2, ..LinkConfig::default() };
        let listen = "127.0.0.1:0".parse()?;
        let relay = Relay::start(Config { link, ..Config::new(listen, self.server.tcp.to_string().parse()?) })?;
        Ok(Site { url: format!("mortar://{}/main", relay.address()), redirector: None, relay })
    }

    /// A site with a redirector, which has no members yet.
    pub(super) fn group_site(&self, round_trip: Duration, group: &str) -> Result<Site> {
        let site = self.site(round_trip)?;
        let address = Address::free_tcp()?;
        let mut command = Command::new(binary()?);
        command.args(["node", "--role", "redirector", "--group", group, "--listen", &address.to_string()]);
        command.args(["--upstream", &format!("mortar://{}", site.relay.address())]);
        let log = self.server.directory.path().join(format!("redirector-{group}.log"));
        let server = Server::start("a redirector", &mut command, &log, std::slice::from_ref(&address))?;
        let store_url = format!("mortar://{}/main", self.server.tcp);
        let redirector = Redirector { _server: server, address, group: group.to_owned(), store_url };
        redirector.wait_registered()?;
        Ok(Site { url: format!("{}?group={group}", site.url), redirector: Some(redirector), ..site })
    }
}

impl Site {
    /// Changes the round trip of the link.
    pub(super) fn set_round_trip(&self, round_trip: Duration) {
        self.relay.set_delay(round_trip / 2);
    }

    /// What has crossed the link.
    pub(super) fn traffic(&self) -> Counters {
        self.relay.counters()
    }
}

impl Redirector {
    fn wait_registered(&self) -> Result<()> {
        let begun = Instant::now();
        while self.registered_counts()?.is_none() {
            if begun.elapsed() > START_TIMEOUT {
                return Err(
                    format!("the redirector of {} is not registered after {START_TIMEOUT:?}", self.group).into()
                );
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    fn registered_counts(&self) -> Result<Option<Counts>> {
        let found = runtime()?
            .block_on(async { AdminClient::connect(&self.store_url).await?.redirectors(&self.group).await })?;
        Ok(found.into_iter().next().map(|redirector| redirector.counts))
    }

    /// What it has done, including what it has done last.
    pub(super) fn counts(&self) -> Result<Counts> {
        std::thread::sleep(REPORT_INTERVAL);
        self.registered_counts()?
            .ok_or_else(|| format!("the redirector of {} is not registered any more", self.group).into())
    }
}
