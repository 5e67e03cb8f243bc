//! Report of a search: the verdict, the table of settings, and what to run.

use std::path::Path;

use ronde_command::{
    Order, Outcome, Parameter, Phase, Reason, Row, Setting, Verdict, by_setting, geometric_mean,
    scatter, seconds,
};

use super::figures;
use super::job::Job;
use crate::argv::quoted;
use crate::present::units::{NONE, change, changes, counted, duration, percent, short};
use crate::present::{List, Look, Section, Table, markdown, text};

/// Scatter of the runs of one setting, as a share, above which the report warns.
const SCATTER_MOST: f64 = 0.05;

/// Runs of one setting.
pub(super) struct Tried<'a> {
    pub(super) setting: &'a Setting,
    pub(super) rows: Vec<&'a Row>,
}

/// Result of a search.
pub(super) struct Report<'a> {
    pub(super) job: &'a Job,
    pub(super) rows: &'a [Row],
    pub(super) verdict: Verdict,
    pub(super) unfinished: Option<String>,
}

impl<'a> Report<'a> {
    pub(super) fn new(job: &'a Job, rows: &'a [Row], unfinished: Option<String>) -> Self {
        let verdict = job.plan.verdict(rows);
        Self {
            job,
            rows,
            verdict,
            unfinished,
        }
    }

    /// Settings with their runs, the best first; failed ones last.
    pub(super) fn tried(&self) -> Vec<Tried<'a>> {
        let groups = by_setting(self.rows).into_iter();
        let groups = groups.map(|(setting, rows)| Tried { setting, rows });
        let mut tried: Vec<Tried> = groups.collect();
        let cost = |tried: &Tried| tried.cost().unwrap_or(f64::INFINITY);
        tried.sort_by(|a, b| cost(a).total_cmp(&cost(b)));
        tried
    }

    /// Costs of the start and of the candidate, of their runs in the comparison.
    fn compared(&self, setting: &Setting) -> Option<f64> {
        let compared = self.rows.iter().filter(|row| row.phase == Phase::Compare);
        let own = compared.filter(|row| row.setting == *setting).collect();
        Tried { setting, rows: own }.cost()
    }

    /// The verdict in sentences.
    pub(super) fn answer(&self) -> Vec<String> {
        let (job, verdict) = (self.job, &self.verdict);
        let start = job.words(&job.plan.start());
        let candidate = verdict.candidate.as_ref();
        let candidate = candidate.map_or_else(String::new, |setting| job.words(setting));
        let gain = verdict.gain.map(|[mean, low, high]| {
            let pairs = counted(verdict.pairs as u64, "pair");
            format!(
                "{} {}, 95 % interval {}, in {pairs} of alternating runs",
                job.metric.name(),
                change(self.shown(mean)),
                self.interval(low, high),
            )
        });
        let gain = gain.unwrap_or_else(|| "the comparison has no two pairs of runs".to_owned());
        let mut sentences = vec![match &verdict.reason {
            Reason::Faster => format!("Use {candidate} instead of the start, {start}: {gain}."),
            Reason::NotShown => format!(
                "Keep the start, {start}: {candidate} looked best, but was not shown to be better \
                 ({gain})."
            ),
            Reason::NoneBetter => {
                format!("Keep the start, {start}: no other setting looked better.")
            }
            Reason::NoRoom { budget_s, needed_s } => format!(
                "Keep the start, {start}: no other setting was tried, because the budget of {} has \
                 no room for it. Another setting and its comparison with the start take about {} \
                 in all: give a longer --budget, or make the runs shorter.",
                duration(*budget_s),
                duration(*needed_s),
            ),
            Reason::CandidateFailed(reason) => {
                format!(
                    "Keep the start, {start}: {candidate} looked best, but a run of it failed \
                     ({reason})."
                )
            }
            Reason::StartFailed(reason) => format!(
                "Keep the start, {start}: a run of it failed during the comparison with \
                 {candidate} ({reason})."
            ),
            Reason::CheckDiffers {
                values: [own, other],
            } => format!(
                "Keep the start, {start}: {candidate} is refused, because its check value is {} \
                 and the start's is {}, which differs by more than {} %.",
                short(*other),
                short(*own),
                short(100.0 * job.tolerance),
            ),
            Reason::Unfinished if candidate.is_empty() => {
                format!("There is no verdict yet; nothing looks better than the start, {start}.")
            }
            Reason::Unfinished => format!(
                "There is no verdict yet: {candidate} looks best, but its comparison with the \
                 start, {start}, is not complete."
            ),
        }];
        sentences.extend(self.unfinished.clone());
        sentences
    }

    /// The gain as a share of the start's figure: mean, and the ends of its interval.
    pub(super) fn gains(&self) -> Option<[f64; 3]> {
        let of_figure = |gain: f64| match self.job.maximize {
            true => self.shown(gain),
            false => gain,
        };
        self.verdict.gain.map(|gains| gains.map(of_figure))
    }

    /// A gain in cost as the change of the figure: negative where lower is better.
    fn shown(&self, gain: f64) -> f64 {
        match self.job.maximize {
            true => 1.0 / (1.0 - gain) - 1.0,
            false => -gain,
        }
    }

    fn interval(&self, low: f64, high: f64) -> String {
        let [a, b] = [self.shown(low), self.shown(high)];
        changes(a.min(b), a.max(b))
    }

    /// Failed runs, values at the end of their range, and scatter.
    fn warnings(&self) -> Vec<String> {
        let (plan, chosen) = (&self.job.plan, &self.verdict.chosen);
        let failed = |(index, row): (usize, &Row)| match &row.outcome {
            Outcome::Failed { reason } => Some(format!(
                "Run {} failed with {}: {reason}. {}.",
                index + 1,
                self.job.words(&row.setting),
                match row.phase {
                    Phase::Search => "It counts as the worst",
                    Phase::Compare => "The comparison repeats one such run",
                },
            )),
            _ => None,
        };
        let at_end = |(parameter, &index): (&Parameter, &usize)| {
            let is_end = index == 0 || index + 1 == parameter.values().len();
            let is_ordered = parameter.order() == Order::Ordered;
            let name = parameter.name();
            (is_end && is_ordered && *chosen != plan.start())
                .then(|| format!("{name} is at the end of its range; try a wider one."))
        };
        let failed = self.rows.iter().enumerate().filter_map(failed);
        let ends = plan.parameters().iter().zip(&chosen.0).filter_map(at_end);
        failed.chain(ends).chain(self.scatter_warning()).collect()
    }

    /// Warning if runs of the same setting differ much.
    fn scatter_warning(&self) -> Option<String> {
        let logs = by_setting(self.rows).into_iter().map(|(_, rows)| {
            let values = rows.iter().filter_map(|row| row.outcome.value());
            values.map(f64::ln).collect()
        });
        let scatter = scatter((0.0, 0.0), logs);
        (scatter > SCATTER_MOST).then(|| {
            format!(
                "Runs of the same setting differ by {} (standard deviation), so smaller gains are \
                 not seen: use a quiet machine, longer runs, or more --runs.",
                percent(scatter)
            )
        })
    }

    fn table(&self) -> Table {
        let parameters = self.job.plan.parameters();
        let name = self.job.metric.name();
        let mut headings = vec!["="];
        headings.extend(parameters.iter().map(Parameter::name));
        headings.extend([name.as_str(), "against the start", "runs", "<"]);
        let mut table = Table::new(&headings).with_keys(1 + parameters.len());
        let start = self.job.plan.start();
        let tried = self.tried();
        let of_start = cost_of(&tried, &start);
        let is_decided = self.verdict.reason != Reason::Unfinished;
        for tried in &tried {
            let is_chosen = is_decided && *tried.setting == self.verdict.chosen;
            let mut cells = vec![if is_chosen { "*" } else { "" }.to_owned()];
            let values = parameters.iter().zip(&tried.setting.0);
            cells.extend(values.map(|(parameter, index)| parameter.value(*index).to_owned()));
            let cost = tried.cost();
            cells.push(cost.map_or(NONE.to_owned(), |cost| short(self.job.figure(cost))));
            let both = cost.zip(of_start);
            let ratio = both.map(|(own, start)| self.shown(1.0 - own / start));
            cells.push(ratio.map_or(NONE.to_owned(), change));
            cells.push(tried.rows.len().to_string());
            cells.push(match tried.setting == &start {
                true => "the start".to_owned(),
                false => tried.note(),
            });
            table.row(cells);
        }
        table
    }

    pub(super) fn sections(&self) -> Vec<Section<'_>> {
        let job = self.job;
        let figures = figures::figures(self);
        let runs = counted(self.rows.len() as u64, "run");
        let config = Path::new("{config}");
        let (parameters, chosen) = (job.plan.parameters(), &self.verdict.chosen);
        let filled = job.template.fill(parameters, chosen, config);
        // A shell takes a quoted `name=` for a program.
        let variables = filled.variables.iter();
        let variables = variables.map(|(name, text)| format!("{name}={}", quoted(&[text.into()])));
        let words = variables.chain([quoted(&filled.command)]);
        let line = words.collect::<Vec<_>>().join(" ");
        let mut use_it = Section::new("use", "Command with this setting").code([line]);
        if let Some(config) = filled.config {
            use_it = use_it.text("The configuration file with these values:");
            use_it = use_it.code(config.lines().map(str::to_owned));
        }
        let settings = Section::new("settings", "Settings").table(self.table());
        let settings = settings.text(format!(
            "{runs} in {}; the figure of a setting is the geometric mean of its runs, those of \
             the comparison if there are any.",
            duration(seconds(self.rows))
        ));
        let verdict = Section::new("verdict", "Verdict").texts(self.answer());
        let verdict = verdict.list(List::Warnings, self.warnings());
        vec![verdict, settings.page(figures), use_it]
    }

    /// Report for the terminal.
    pub(super) fn text(&self, look: &Look) -> String {
        text(&self.sections(), look)
    }

    /// Report in Markdown.
    pub(super) fn markdown(&self) -> String {
        markdown(&self.title(), &self.sections())
    }

    /// Title of the page.
    pub(super) fn title(&self) -> String {
        let program = self.job.template.program().to_string_lossy();
        let name = program.rsplit('/').next().unwrap_or_default().to_owned();
        format!("Tuning of {name}")
    }

    /// Cost of the setting that was chosen, or of the start, in the comparison.
    pub(super) fn cost_of(&self, setting: &Setting) -> Option<f64> {
        let all = || cost_of(&self.tried(), setting);
        self.compared(setting).or_else(all)
    }
}

fn cost_of(tried: &[Tried], setting: &Setting) -> Option<f64> {
    tried.iter().find(|tried| tried.setting == setting)?.cost()
}

impl Tried<'_> {
    /// Geometric mean of the runs, of the comparison if there are any; `None` if one of the search
    /// has failed, or two of the comparison, which repeats one.
    pub(super) fn cost(&self) -> Option<f64> {
        let of = |phase: Phase| self.rows.iter().filter(move |row| row.phase == phase);
        let values = |phase: Phase| of(phase).map(|row| row.outcome.value());
        let searched: Option<Vec<f64>> = values(Phase::Search).collect();
        let searched = searched?;
        let compared: Vec<f64> = values(Phase::Compare).flatten().collect();
        if of(Phase::Compare).count() > compared.len() + 1 {
            return None;
        }
        let counted = if compared.is_empty() {
            searched
        } else {
            compared
        };
        (!counted.is_empty()).then(|| geometric_mean(&counted))
    }

    /// Remark on its runs: failed, stopped or compared.
    fn note(&self) -> String {
        let of = |is: fn(&Outcome) -> bool| self.rows.iter().any(|row| is(&row.outcome));
        let has_failed = of(|outcome| matches!(outcome, Outcome::Failed { .. }));
        if has_failed && self.cost().is_some() {
            "compared, failed once".to_owned()
        } else if has_failed {
            "failed".to_owned()
        } else if of(Outcome::is_stopped) {
            "stopped early".to_owned()
        } else if self.rows.iter().any(|row| row.phase == Phase::Compare) {
            "compared".to_owned()
        } else {
            String::new()
        }
    }
}
