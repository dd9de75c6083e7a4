//! The workloads of "Transactional Object Data Store": reads through peer servers and transactions over bricks.
//!
//! A cluster of real processes runs on this machine: a meta-server, bricks and peer servers, each with its defaults.
//! The same generator drives the cluster and its rivals; all processes share the cores of the machine.

mod cluster;
mod hits;
mod reads;
mod scaling;
mod transactions;

use crate::Result;
use crate::figure::Figure;
use crate::run::Run;

/// Figures of the paper: their names for `--only` (several if they use the same runs), and the function that measures them.
type Measure = fn(&Run) -> Result<Figure>;

/// All figures of the paper about speed.
pub(crate) const FIGURES: [(&str, Measure); 9] = [
    ("tods-7", reads::in_memory),
    ("tods-8 tods-9", reads::in_memory_by_size),
    ("tods-10", reads::on_disk),
    ("tods-11", reads::on_disk_by_size),
    ("tods-12", hits::hits),
    ("tods-13", hits::hits_by_size),
    ("tods-14", transactions::local),
    ("tods-15", transactions::distributed),
    ("tods-scaling", scaling::scaling),
];
