//! A store in memory whose writes fail when told to.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use vk_hub_core::Record;

use crate::store::{AuditLine, Member, MemberKind, Redeemed, Store, StoreError};

/// The store; a clone is the same one.
#[derive(Clone, Default)]
pub(super) struct Failing {
    fails: Arc<AtomicBool>,
    kept: Arc<Mutex<Vec<Record>>>,
}

impl Failing {
    pub(super) fn boxed(&self) -> Box<dyn Store> {
        Box::new(self.clone())
    }

    pub(super) fn fail(&self, fails: bool) {
        self.fails.store(fails, Ordering::SeqCst);
    }

    pub(super) fn check(&self) -> Result<(), StoreError> {
        if self.fails.load(Ordering::SeqCst) {
            return Err(StoreError::Damaged {
                row: "1".to_owned(),
                path: "memory".into(),
                why: "the test says so".to_owned(),
            });
        }
        Ok(())
    }
}

impl Store for Failing {
    fn records(&mut self) -> Result<Vec<Record>, StoreError> {
        self.check()?;
        Ok(self.kept.lock().unwrap().clone())
    }

    fn append(&mut self, records: &[Record]) -> Result<(), StoreError> {
        self.check()?;
        self.kept.lock().unwrap().extend_from_slice(records);
        Ok(())
    }

    fn members(&mut self) -> Result<Vec<Member>, StoreError> {
        Ok(Vec::new())
    }

    fn add_token(&mut self, _: &[u8; 32], _: MemberKind, _: u64) -> Result<(), StoreError> {
        self.check()
    }

    fn redeem(&mut self, _: &[u8; 32], _: u64, _: &Member) -> Result<Redeemed, StoreError> {
        self.check()?;
        Ok(Redeemed::Refused("there is no token here"))
    }

    fn remove_member(&mut self, _: &[u8; 16], _: u64) -> Result<bool, StoreError> {
        self.check()?;
        Ok(false)
    }

    fn audit(&mut self, _: u32) -> Result<Vec<AuditLine>, StoreError> {
        Ok(Vec::new())
    }
}
