//! Settings of the limits of connections, and of the memory for their unfinished input.

use node::{Config, ConnectionLimits};

use super::{PartialSettings, SettingLine, comment_unless, line};

/// The given settings; the others have defaults.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ConnectionSettings {
    max_connections: Option<u32>,
    max_connections_per_user: Option<u32>,
    max_connections_per_address: Option<u32>,
    unfinished_input_mib: Option<u32>,
}

impl ConnectionSettings {
    pub(super) fn of(given: &PartialSettings) -> Self {
        Self {
            max_connections: given.max_connections,
            max_connections_per_user: given.max_connections_per_user,
            max_connections_per_address: given.max_connections_per_address,
            unfinished_input_mib: given.unfinished_input_mib,
        }
    }

    /// The limits of connections. By default, one user or one address may have half of all.
    pub(super) fn limits(&self) -> ConnectionLimits {
        let defaults = ConnectionLimits::default();
        let total = self.max_connections.map_or(defaults.total, |count| count as usize);
        let part = |given: Option<u32>| given.map_or(total.div_ceil(2), |count| count as usize);
        let (per_user, per_address) = (part(self.max_connections_per_user), part(self.max_connections_per_address));
        ConnectionLimits { total, per_user, per_address, ..defaults }
    }

    pub(super) fn unfinished_input_bytes(&self) -> usize {
        self.unfinished_input_mib.map_or(Config::default().unfinished_input_bytes, |mib| (mib as usize) << 20)
    }

    /// Lines of a settings file.
    pub(super) fn lines(&self) -> Vec<SettingLine> {
        let limits = self.limits();
        let lines = [
            (
                self.max_connections.is_some(),
                line(
                    "Connections at a time; 32 more are for administrators.",
                    "max_connections",
                    limits.total.to_string(),
                ),
            ),
            (
                self.max_connections_per_user.is_some(),
                line("Connections of one user.", "max_connections_per_user", limits.per_user.to_string()),
            ),
            (
                self.max_connections_per_address.is_some(),
                line(
                    "Connections from one address, or of one local user over a Unix socket; not over loopback.",
                    "max_connections_per_address",
                    limits.per_address.to_string(),
                ),
            ),
            (
                self.unfinished_input_mib.is_some(),
                line(
                    "Memory for requests that have arrived in part, in MiB.",
                    "unfinished_input_mib",
                    (self.unfinished_input_bytes() >> 20).to_string(),
                ),
            ),
        ];
        lines.into_iter().map(|(is_given, line)| comment_unless(is_given, line)).collect()
    }
}
