use std::sync::Arc;

use crate::phrase::PhraseMasker;
use crate::search::PatternSet;
use crate::stamp::{StampLink, Stamper};
use crate::token::{TokenLink, TokenMasker};
use crate::url::{UrlLink, UrlMasker};
use crate::utf8::Repair;
use crate::{ReadTime, TraceError};

/// What is looked for in every stream of a job.
pub(crate) struct Masks {
    pub(crate) phrases: Arc<PatternSet>,
    pub(crate) prefixes: PatternSet,
}

impl Masks {
    /// Compiles `phrases` and takes the compiled `prefixes`.
    pub(crate) fn new(phrases: &[&str], prefixes: PatternSet) -> Result<Self, TraceError> {
        Ok(Self {
            phrases: Arc::new(PatternSet::new(phrases)?),
            prefixes,
        })
    }
}

/// What text goes through once phrases are masked.
type Links<'a> = UrlLink<'a, TokenLink<'a, StampLink<'a>>>;

/// One stream's way to the trace: repair, masks, stamps (STAGE-15, STAGE-19).
pub(crate) struct Chain {
    repair: Repair,
    phrases: PhraseMasker,
    urls: UrlMasker,
    tokens: TokenMasker,
    stamper: Stamper,
}

impl Chain {
    /// A chain for the stream whose stamps end in `label`.
    pub(crate) fn new(masks: &Masks, stamps: bool, label: [u8; 3]) -> Self {
        Self {
            repair: Repair::default(),
            phrases: PhraseMasker::new(&masks.phrases),
            urls: UrlMasker::default(),
            tokens: TokenMasker::default(),
            stamper: Stamper::new(stamps, label),
        }
    }

    /// One read's bytes.
    pub(crate) fn write(&mut self, masks: &Masks, at: ReadTime, bytes: &[u8], out: &mut Vec<u8>) {
        let (repair, phrases, mut sink) = self.links(masks, out);
        repair.feed(at, bytes, |at, text| {
            phrases.feed(&masks.phrases, at, text, &mut sink)
        });
        self.stamper.end_write(out);
    }

    /// A message that is complete in itself: nothing of it waits for what comes next.
    pub(crate) fn message(&mut self, masks: &Masks, at: ReadTime, bytes: &[u8], out: &mut Vec<u8>) {
        let (repair, phrases, mut sink) = self.links(masks, out);
        repair.feed(at, bytes, |at, text| {
            phrases.feed(&masks.phrases, at, text, &mut sink)
        });
        self.flush_masks(masks, out);
        self.stamper.end_write(out);
    }

    /// The end of the stream; the chain is then as new.
    pub(crate) fn close(&mut self, masks: &Masks, out: &mut Vec<u8>) {
        self.flush_masks(masks, out);
        self.stamper.flush(out);
    }

    fn flush_masks(&mut self, masks: &Masks, out: &mut Vec<u8>) {
        let (repair, phrases, mut sink) = self.links(masks, out);
        repair.flush(|at, text| phrases.feed(&masks.phrases, at, text, &mut sink));
        phrases.flush(&masks.phrases, &mut sink);
        self.urls = UrlMasker::default();
        self.tokens = TokenMasker::default();
    }

    fn links<'a>(
        &'a mut self,
        masks: &'a Masks,
        out: &'a mut Vec<u8>,
    ) -> (&'a mut Repair, &'a mut PhraseMasker, Links<'a>) {
        let stamps = StampLink {
            stamper: &mut self.stamper,
            out,
        };
        let tokens = TokenLink {
            masker: &mut self.tokens,
            set: &masks.prefixes,
            next: stamps,
        };
        let urls = UrlLink {
            masker: &mut self.urls,
            next: tokens,
        };
        (&mut self.repair, &mut self.phrases, urls)
    }
}
