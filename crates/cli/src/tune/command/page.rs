//! Report as one self-contained HTML page.

use maud::html;
use ronde_command::{Reason, seconds};

use super::report::Report;
use crate::html::text::Foreign;
use crate::html::{Document, tile};
use crate::present::markup;
use crate::present::units::{counted, duration, percent, short};

/// Renders the page.
pub(super) fn page(report: &Report) -> String {
    let verdict = &report.verdict;
    let name = report.job.metric.name();
    let figure = |setting| {
        let cost = report.cost_of(setting);
        cost.map_or(crate::present::units::NONE.to_owned(), |cost| {
            short(report.job.figure(cost))
        })
    };
    let start = report.job.plan.start();
    let mut tiles = vec![
        ("Start", figure(&start), name.clone()),
        (
            "Runs",
            report.rows.len().to_string(),
            duration(seconds(report.rows)),
        ),
    ];
    if verdict.reason == Reason::Faster {
        tiles.insert(0, ("Chosen", figure(&verdict.chosen), name));
    }
    if let Some([mean, low, high]) = report.gains() {
        let pairs = counted(verdict.pairs as u64, "pair");
        let interval = format!("{} to {}, {pairs}", percent(low), percent(high));
        tiles.push(("Gain of the best setting", percent(mean), interval));
    }
    let title = report.title();
    let document = Document {
        title: &title,
        style: "",
        body: html! {
            p.answer { strong { @for sentence in report.answer() { (Foreign(&sentence)) " " } } }
            dl.tiles { @for (name, value, detail) in &tiles { (tile(name, value, detail)) } }
            (markup(&report.sections()))
        },
    };
    document.render()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::present::Look;
    use crate::tune::command::job::Job;
    use ronde_cases::page::check;
    use ronde_command::{Outcome, Phase, Row, Setting};

    #[test]
    fn reports_are_well_formed_and_escape_names() {
        let argv = [
            "ronde",
            "tune",
            "-p",
            "algo=<b>|t|u",
            "--check",
            "loss=(.*)",
            "--env",
            "FLAGS=--a={algo} --b",
            "--",
            "a&b",
            "{algo}",
        ];
        let argv = argv.map(std::ffi::OsString::from).to_vec();
        let Ok(cli) = crate::parse(argv) else {
            panic!("the arguments are correct");
        };
        let crate::Command::Tune(args) = cli.command else {
            panic!("it is ronde tune");
        };
        let job = Job::new(&args).unwrap();
        let row = |level: usize, outcome: Outcome, phase: Phase| Row {
            phase,
            setting: Setting(vec![level]),
            outcome,
            seconds: 2.0,
        };
        let measured = |value: f64| Outcome::Measured {
            value,
            check: Some(1.0),
            figures: Vec::new(),
        };
        let failed = Outcome::Failed {
            reason: "it exited with code 1".to_owned(),
        };
        let mut rows = vec![
            row(0, measured(2.0), Phase::Search),
            row(1, measured(1.0), Phase::Search),
            row(2, failed, Phase::Search),
            row(2, Outcome::Stopped { value: 4.0 }, Phase::Search),
        ];
        for length in 1..=rows.len() {
            let report = Report::new(&job, &rows[..length], Some("Interrupted.".to_owned()));
            let page = page(&report);
            check(&page);
            assert!(page.contains("Tuning of a&amp;b") && !page.contains("<b>"));
            assert!(
                report
                    .text(&Look::PLAIN)
                    .contains("There is no verdict yet")
            );
        }
        for _ in 0..3 {
            rows.push(row(0, measured(2.0), Phase::Compare));
            rows.push(row(1, measured(1.0), Phase::Compare));
        }
        let text = Report::new(&job, &rows, None).text(&Look::PLAIN);
        assert!(
            text.starts_with("Verdict\n  Use algo t instead of the start, algo <b>: "),
            "{text}"
        );
        assert!(
            text.contains("! Run 3 failed with algo u: it exited with code 1."),
            "{text}"
        );
        assert!(
            text.ends_with("Command with this setting\n    FLAGS='--a=t --b' 'a&b' t\n"),
            "{text}"
        );
    }
}
