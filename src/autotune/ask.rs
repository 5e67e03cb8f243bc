//! Proposals of the search: requested from another thread, received, or lost.

use ronde_tuner::{Next, Proposal};

use super::Autotune;
use super::news::{News, Place};
use super::report::AutotuneReport;
use super::trace::Tracer;
use super::worker::{Answer, Asked, Evidence, Outcome};
use crate::replay::{JobTopology, Rules};
use crate::settings::Settings;

/// Consecutive proposals that may be lost before the search is abandoned.
const LOST_MAX: u32 = 3;

impl Autotune {
    /// Starts the computation of the next proposal.
    pub(super) fn ask(&mut self, tracer: &Tracer) {
        let evidence = Evidence {
            seen: tracer.seen(),
            reference: self.search.reference(),
            rules: Rules {
                early: self.knobs.early_cycle,
                ..Rules::RONDE
            },
            place: JobTopology::new(
                self.facts.ranks as u32,
                self.facts.ranks.div_ceil(self.facts.hosts.count) as u32,
            ),
            seed: self.knobs.autotune_seed.unwrap_or_default(),
        };
        // A proposal that was lost once may have been lost because of its evidence.
        // The replay has no batches in device memory.
        let evidence = (self.lost == 0 && !self.facts.on_gpu).then_some(evidence);
        match Asked::new(
            self.search.session.proposal_job(),
            evidence,
            self.search.last_ms,
        ) {
            Ok(asked) => self.search.asked = Some(asked),
            Err(error) => {
                tracing::warn!("autotune: cannot start its thread: {error}");
                self.lost = LOST_MAX;
            }
        }
    }

    /// Returns the requested proposal, if it has arrived.
    pub(super) fn received(&mut self, tracer: &Tracer) -> Option<Proposal> {
        let asked = self.search.asked.as_ref()?;
        match asked.outcome() {
            Outcome::Pending => None,
            Outcome::Done(answer) => {
                let Answer {
                    proposal,
                    spent,
                    surface,
                } = *answer;
                tracing::info!("autotune: {}", spent.text(asked.slowdown_pct()));
                self.search.asked = None;
                self.lost = 0;
                self.progress.tell(|| News::Proposed {
                    surface,
                    incumbent: Place::of(&proposal.incumbent),
                    next: match &proposal.next {
                        Next::Sample(point) => Some(Place::of(point)),
                        Next::Stop => None,
                    },
                });
                Some(proposal)
            }
            Outcome::Lost => {
                self.search.asked = None;
                self.lost += 1;
                if self.lost < LOST_MAX {
                    tracing::warn!("autotune: the proposal was lost; asking again");
                    self.ask(tracer);
                }
                None
            }
        }
    }

    /// Whether no proposal can be computed here.
    pub(super) fn is_lost(&self) -> bool {
        self.lost >= LOST_MAX
    }

    /// Ends the search, with the start settings.
    pub(super) fn give_up(&mut self) -> Settings {
        self.keep_unfinished();
        let text = format!(
            "{LOST_MAX} proposals in a row were lost; tuning ends with the settings of its start"
        );
        tracing::warn!("autotune: {text}");
        self.progress.tell(|| News::Warning(text));
        self.given_up = true;
        self.write_log();
        let settings = self.search.reference();
        self.progress.set_autotune(AutotuneReport {
            settings,
            step_ms: None,
            ..self.search.report()
        });
        settings
    }
}
