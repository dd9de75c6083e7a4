//! Bugs that can be planted in the driver of the redirector.

pub use model::planted_bug::planted;

model::planted_bugs! {
    /// A bug in the driver of the redirector.
    pub enum Bug {
        WriteUnchecked "a member without the permission to write may write outside of transactions"
        ForeignTransaction "a member may use the transactions of another one"
        HolderNotForgotten "a holder stays in the directory when its connection has ended"
    }
}
