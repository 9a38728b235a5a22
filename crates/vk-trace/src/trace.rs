use std::sync::Arc;

use crate::chain::{Chain, Masks};
use crate::limit::{Limit, cut_line};
use crate::search::PatternSet;
use crate::{Line, ReadTime, Secrets, Section, TraceError, token};

/// How long the closing lines may be in sum, as the trace holds them.
const MAX_CLOSING: usize = 32 << 10;

/// Whose output a stream carries: the stamp's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// 00: what prepares the job (STAGE-16, STAGE-39). The node's own lines are 00 too, see
    /// [`Trace::line`].
    Node,
    /// 01: what runs in the job's environment (STAGE-17, STAGE-39).
    Guest,
}

/// Which of a process's two streams (STAGE-18).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `O`.
    Stdout,
    /// `E`.
    Stderr,
}

/// How a job's trace is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Whether lines are stamped, see [`timestamps_wanted`](crate::timestamps_wanted).
    pub timestamps: bool,
    /// Whether sections are marked: GitLab's `trace_sections` (STAGE-30).
    pub sections: bool,
    /// How many bytes the trace may hold; 0 means 4 MiB.
    pub limit_bytes: u64,
    /// Token prefixes beyond the defaults: GitLab's `token_mask_prefixes` (STAGE-26).
    pub token_prefixes: Vec<String>,
}

impl Default for Settings {
    /// Stamps, no sections, 4 MiB, the default prefixes.
    fn default() -> Self {
        Self {
            timestamps: true,
            sections: false,
            limit_bytes: 0,
            token_prefixes: Vec::new(),
        }
    }
}

/// A job's trace in the making.
///
/// Every method appends to `out` what GitLab's trace is to hold next, in order, to the byte: what
/// was appended is final, and its length is the trace's offset (DISP-44). Bytes of unfinished lines
/// and possible secrets wait inside, a bounded number of them for each stream.
///
/// After an error nothing is appended any more (STAGE-34).
pub struct Trace {
    stamps: bool,
    sections: bool,
    secrets: Secrets,
    masks: Masks,
    limit: Limit,
    /// The node's own lines.
    lines: Chain,
    node: [Chain; 2],
    guest: [Chain; 2],
    state: State,
}

#[derive(Clone, Copy)]
enum State {
    Open,
    Stopped,
    Finished,
}

impl Trace {
    /// A trace with nothing in it, in which `secrets` are masked.
    ///
    /// # Errors
    /// More secrets or prefixes than can be searched for. The job cannot run: its output would be
    /// unmasked.
    pub fn new(settings: &Settings, secrets: Secrets) -> Result<Self, TraceError> {
        let prefixes = token::prefixes(&settings.token_prefixes)?;
        let masks = Masks::new(&secrets.phrases()?, prefixes)?;
        let chain = |label: &[u8; 3]| Chain::new(&masks, settings.timestamps, *label);
        Ok(Self {
            stamps: settings.timestamps,
            sections: settings.sections,
            lines: chain(b"00O"),
            node: [chain(b"00O"), chain(b"00E")],
            guest: [chain(b"01O"), chain(b"01E")],
            secrets,
            masks,
            limit: Limit::new(settings.limit_bytes),
            state: State::Open,
        })
    }

    /// Masks `more` secrets from now on, in every stream, also in what still waits for a possible
    /// secret's end. What has left, or waits in an unfinished line, was taken before.
    ///
    /// # Errors
    /// More secrets in sum than can be searched for; the trace is then stopped.
    pub fn add_secrets(&mut self, more: &Secrets) -> Result<(), TraceError> {
        self.check()?;
        if self.secrets.merge(more) {
            let compiled = self
                .secrets
                .phrases()
                .and_then(|phrases| PatternSet::new(&phrases));
            match compiled {
                Ok(phrases) => self.masks.phrases = Arc::new(phrases),
                Err(error) => {
                    self.state = State::Stopped;
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Bytes that a process wrote, as one read at `at` returned them. How output is cut into reads
    /// changes only where lines are broken by stamps, never what is masked.
    ///
    /// # Errors
    /// Only that nothing may follow: masking failed before, or the trace is finished.
    pub fn write(
        &mut self,
        origin: Origin,
        kind: Kind,
        at: ReadTime,
        bytes: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), TraceError> {
        self.append(out, |trace, out| {
            let [stdout, stderr] = match origin {
                Origin::Node => &mut trace.node,
                Origin::Guest => &mut trace.guest,
            };
            let chain = match kind {
                Kind::Stdout => stdout,
                Kind::Stderr => stderr,
            };
            chain.write(&trace.masks, at, bytes, out);
        })
    }

    /// The end of a process's streams: what they held goes out, an unfinished line gets a line
    /// break (where lines are stamped), and the next process begins afresh.
    ///
    /// # Errors
    /// As for [`Trace::write`].
    pub fn close(&mut self, origin: Origin, out: &mut Vec<u8>) -> Result<(), TraceError> {
        self.append(out, |trace, out| {
            let chains = match origin {
                Origin::Node => &mut trace.node,
                Origin::Guest => &mut trace.guest,
            };
            chains
                .iter_mut()
                .for_each(|chain| chain.close(&trace.masks, out));
        })
    }

    /// A line of the node's own, stream 00 (STAGE-16).
    ///
    /// # Errors
    /// As for [`Trace::write`].
    pub fn line(
        &mut self,
        at: ReadTime,
        line: Line<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), TraceError> {
        self.append(out, |trace, out| {
            trace.lines.message(&trace.masks, at, &line.render(), out);
        })
    }

    /// The start of a section; nothing where the job's sections are not marked (STAGE-30).
    ///
    /// # Errors
    /// As for [`Trace::write`].
    pub fn section_start(
        &mut self,
        at: ReadTime,
        section: &Section,
        out: &mut Vec<u8>,
    ) -> Result<(), TraceError> {
        self.marker("start", at, section, out)
    }

    /// The end of a section; nothing where the job's sections are not marked (STAGE-30).
    ///
    /// # Errors
    /// As for [`Trace::write`].
    pub fn section_end(
        &mut self,
        at: ReadTime,
        section: &Section,
        out: &mut Vec<u8>,
    ) -> Result<(), TraceError> {
        self.marker("end", at, section, out)
    }

    /// The end of the trace: what the streams held, then the `closing` lines, the job's result
    /// last. These come whole even where the limit was reached, up to 32 KiB in sum (STAGE-28).
    ///
    /// # Errors
    /// As for [`Trace::write`].
    pub fn finish(
        &mut self,
        at: ReadTime,
        closing: &[Line<'_>],
        out: &mut Vec<u8>,
    ) -> Result<(), TraceError> {
        self.close(Origin::Node, out)?;
        self.close(Origin::Guest, out)?;
        self.append(out, |trace, out| trace.lines.close(&trace.masks, out))?;
        let mut chain = Chain::new(&self.masks, self.stamps, *b"00O");
        let from = out.len();
        for line in closing {
            chain.message(&self.masks, at, &line.render(), out);
        }
        cut_line(out, from, MAX_CLOSING);
        self.state = State::Finished;
        Ok(())
    }

    /// Whether the limit was reached: nothing but the closing lines comes out any more.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.limit.is_reached()
    }

    fn marker(
        &mut self,
        edge: &str,
        at: ReadTime,
        section: &Section,
        out: &mut Vec<u8>,
    ) -> Result<(), TraceError> {
        self.append(out, |trace, out| {
            if trace.sections {
                trace
                    .lines
                    .message(&trace.masks, at, &section.marker(edge, at), out);
            }
        })
    }

    fn append(
        &mut self,
        out: &mut Vec<u8>,
        work: impl FnOnce(&mut Self, &mut Vec<u8>),
    ) -> Result<(), TraceError> {
        self.check()?;
        if !self.limit.is_reached() {
            let from = out.len();
            work(self, out);
            self.limit.count(out, from);
        }
        Ok(())
    }

    fn check(&self) -> Result<(), TraceError> {
        match self.state {
            State::Open => Ok(()),
            State::Stopped => Err(TraceError::Stopped),
            State::Finished => Err(TraceError::Finished),
        }
    }
}

impl std::fmt::Debug for Trace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Trace")
            .field("secrets", &self.secrets)
            .field("limit", &self.limit)
            .finish()
    }
}
