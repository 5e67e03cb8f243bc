use super::*;

/// A command with a bowl of 17 by 13 settings; the best one is (4, 9), the start (12, 2).
struct Bowl {
    /// Change of each run, as a factor; the last one stays.
    noise: fn(usize) -> f64,
    runs: usize,
}

fn parameters() -> Vec<Parameter> {
    let of = |name: &str, most: usize, start: usize| {
        format!("{name}=0..{most},start={start}").parse().unwrap()
    };
    vec![of("x", 16, 12), of("y", 12, 2)]
}

impl Bowl {
    fn figure(setting: &Setting) -> f64 {
        let [x, y] = [0, 1].map(|index| setting.0[index] as f64);
        10.0 + 0.1 * (x - 4.0).powi(2) + 0.1 * (y - 9.0).powi(2)
    }

    fn run(&mut self, setting: &Setting) -> Outcome {
        self.runs += 1;
        Outcome::measured(Self::figure(setting) * (self.noise)(self.runs))
    }
}

/// Runs a plan to its end.
fn run(plan: &Plan, mut outcome: impl FnMut(&Setting, Phase) -> Outcome) -> Vec<Row> {
    let mut rows = Vec::new();
    while let Task::Run { phase, setting, .. } = plan.next(&rows) {
        let outcome = outcome(&setting, phase);
        rows.push(Row {
            phase,
            setting,
            outcome,
            seconds: 1.0,
        });
        assert!(rows.len() <= plan.runs());
    }
    rows
}

fn plan() -> Plan {
    Plan::new(parameters(), 20).unwrap()
}

/// Noise of about 2 %, the same in every test.
fn noise(run: usize) -> f64 {
    1.0 + 0.02 * ((run as f64 * 12.9898).sin() * 43758.5453).fract()
}

#[test]
fn a_better_setting_is_found_and_proved() {
    let mut bowl = Bowl { noise, runs: 0 };
    let rows = run(&plan(), |setting, _| bowl.run(setting));
    assert_eq!(rows[0].setting, plan().start());
    let verdict = plan().verdict(&rows);
    assert_eq!(verdict.reason, Reason::Faster);
    assert!(Bowl::figure(&verdict.chosen) < 11.0, "{verdict:?}");
    let [gain, low, high] = verdict.gain.unwrap();
    assert!(low < gain && gain < high && low > 0.3);
}

#[test]
fn an_interrupted_search_continues_as_if_it_had_not_been() {
    let whole = run(&plan(), |setting, _| Bowl { noise, runs: 0 }.run(setting));
    for length in 0..whole.len() {
        let Task::Run { phase, setting, .. } = plan().next(&whole[..length]) else {
            panic!("run {length} is missing");
        };
        assert_eq!(
            (phase, &setting),
            (whole[length].phase, &whole[length].setting)
        );
    }
    let unfinished = plan().verdict(&whole[..whole.len() - 1]);
    assert_eq!(unfinished.reason, Reason::Unfinished);
    assert_eq!(unfinished.chosen, plan().start());
    assert_eq!(plan().verdict(&whole[..1]).reason, Reason::Unfinished);
}

#[test]
fn equal_settings_keep_the_start() {
    let mut runs = 0;
    let rows = run(&plan(), |_, _| {
        runs += 1;
        Outcome::measured(10.0 * noise(runs))
    });
    let verdict = plan().verdict(&rows);
    assert_eq!(verdict.chosen, plan().start());
    assert!(matches!(
        verdict.reason,
        Reason::NotShown | Reason::NoneBetter
    ));
}

#[test]
fn a_setting_that_fails_is_not_chosen() {
    let mut bowl = Bowl { noise, runs: 0 };
    // Everything near the best setting fails.
    let fails = |setting: &Setting| setting.0[0] < 8;
    let rows = run(&plan(), |setting, _| match fails(setting) {
        true => Outcome::Failed {
            reason: "out of memory".to_owned(),
        },
        false => bowl.run(setting),
    });
    assert!(rows.iter().any(|row| fails(&row.setting)), "it was tried");
    let verdict = plan().verdict(&rows);
    assert!(!fails(&verdict.chosen));
    // One that fails only in the comparison is named.
    let rows = run(&plan(), |setting, phase| match phase {
        Phase::Compare if *setting != plan().start() => Outcome::Failed {
            reason: "late".to_owned(),
        },
        _ => Outcome::measured(Bowl::figure(setting)),
    });
    let verdict = plan().verdict(&rows);
    assert_eq!(verdict.reason, Reason::CandidateFailed("late".to_owned()));
    assert_eq!(verdict.chosen, plan().start());
}

#[test]
fn a_run_of_the_comparison_that_fails_once_is_repeated() {
    for failing in 1..=6 {
        let mut compared = 0;
        let rows = run(&plan(), |setting, phase| {
            compared += usize::from(phase == Phase::Compare);
            match phase == Phase::Compare && compared == failing {
                true => Outcome::Failed {
                    reason: "late".to_owned(),
                },
                false => Outcome::measured(Bowl::figure(setting)),
            }
        });
        let failed = rows.iter().position(|row| row.outcome.value().is_none());
        let failed = failed.unwrap();
        assert_eq!(rows[failed].setting, rows[failed + 1].setting);
        // The failure is not the last word of a search that ends there.
        let at_failure = plan().verdict(&rows[..=failed]);
        assert_eq!(at_failure.reason, Reason::Unfinished);
        let verdict = plan().verdict(&rows);
        assert_eq!((verdict.reason, verdict.pairs), (Reason::Faster, 3));
    }
    // With the fewest runs, the repeated one takes the place of the last pair.
    let short = Plan::new(parameters(), 8).unwrap();
    let mut compared = 0;
    let rows = run(&short, |setting, phase| {
        compared += usize::from(phase == Phase::Compare);
        match compared {
            1 if phase == Phase::Compare => Outcome::Failed {
                reason: "late".to_owned(),
            },
            _ => Outcome::measured(Bowl::figure(setting)),
        }
    });
    assert_eq!((rows.len(), short.verdict(&rows).pairs), (7, 2));
}

#[test]
fn a_setting_with_another_check_value_is_refused() {
    let plan = plan().checked(Some(0.01));
    let with_loss = |setting: &Setting, loss: f64| Outcome::Measured {
        value: Bowl::figure(setting),
        check: Some(loss),
        figures: Vec::new(),
    };
    // The loss changes for small x, where the best setting is.
    let loss = |setting: &Setting| if setting.0[0] < 8 { 2.5 } else { 2.0 };
    let rows = run(&plan, |setting, _| with_loss(setting, loss(setting)));
    let verdict = plan.verdict(&rows);
    assert!(loss(&verdict.chosen) == 2.0, "{verdict:?}");
    // A setting that does next to nothing is no measure for the others.
    let rows = run(&plan, |setting, _| match loss(setting) {
        2.0 => with_loss(setting, 2.0),
        loss => Outcome::Measured {
            value: Bowl::figure(setting) / 20.0,
            check: Some(loss),
            figures: Vec::new(),
        },
    });
    let verdict = plan.verdict(&rows);
    assert!(loss(&verdict.chosen) == 2.0, "{verdict:?}");
    // A loss that changes only in the comparison.
    let rows = run(&plan, |setting, phase| {
        let is_other = phase == Phase::Compare && *setting != plan.start();
        with_loss(setting, if is_other { 2.5 } else { 2.0 })
    });
    let verdict = plan.verdict(&rows);
    assert!(
        matches!(verdict.reason, Reason::CheckDiffers { .. }),
        "{:?}",
        verdict.reason
    );
    assert_eq!(verdict.chosen, plan.start());
}

#[test]
fn a_budget_of_time_leaves_room_for_the_comparison() {
    // Each run takes a second: 12 s are fewer runs than 20.
    let plan = plan().within(Some(12.0));
    let rows = run(&plan, |setting, _| Outcome::measured(Bowl::figure(setting)));
    assert!((10..=12).contains(&rows.len()), "{}", rows.len());
    // What the pairs show counts, even if there were to be more of them.
    let cut = plan.clone().within(Some(rows.len() as f64 - 1.0));
    assert_eq!(plan.verdict(&rows).reason, Reason::Faster);
    assert_eq!(cut.verdict(&rows).reason, Reason::Faster);
    assert!(
        rows.iter()
            .filter(|row| row.phase == Phase::Compare)
            .count()
            >= 4
    );
}

#[test]
fn a_budget_without_room_for_another_setting_is_the_reason() {
    // A run of a second, another one, and three pairs.
    let verdict = |budget_s: f64| {
        let plan = plan().within(Some(budget_s));
        let rows = run(&plan, |_, _| Outcome::measured(10.0));
        (rows.len(), plan.verdict(&rows).reason)
    };
    let (budget_s, needed_s) = (7.9, 8.0);
    assert_eq!(verdict(7.9), (1, Reason::NoRoom { budget_s, needed_s }));
    let (runs, reason) = verdict(8.0);
    assert!(runs > 1 && !matches!(reason, Reason::NoRoom { .. }));
}

#[test]
fn the_budget_bounds_each_run() {
    let budget = |rows: &[Row]| match plan().within(Some(20.0)).next(rows) {
        Task::Run { phase, limit, .. } => (phase, limit.budget().unwrap().as_secs_f64()),
        Task::Done => panic!("there is a next run"),
    };
    assert_eq!(budget(&[]), (Phase::Search, 20.0));
    let mut rows = run(&plan().within(Some(20.0)), |setting, _| {
        Outcome::measured(Bowl::figure(setting))
    });
    // The rest of the budget after these runs, and the length of a typical run.
    assert_eq!(budget(&rows[..3]), (Phase::Search, 20.0 - 3.0 + 1.0));
    // Two pairs are compared even if the search has used up the budget: a hang is bounded by the
    // longest run that has a figure.
    rows.retain(|row| row.phase == Phase::Search);
    rows[1].seconds = 3.0;
    rows[2].seconds = 40.0;
    rows[2].outcome = Outcome::Failed {
        reason: "it hung".to_owned(),
    };
    assert_eq!(budget(&rows), (Phase::Compare, 6.0));
}

#[test]
fn a_comparison_that_has_ended_is_not_taken_up_with_more_runs() {
    // A gain of some 4 % whose pairs scatter too much to prove it.
    let mut compared = 0;
    let rows = run(&plan(), |setting, phase| {
        Outcome::measured(match phase {
            _ if *setting == plan().start() => 1.0,
            Phase::Search => 0.95,
            Phase::Compare => {
                compared += 1;
                if compared % 2 == 1 { 0.932 } else { 1.0 }
            }
        })
    });
    let verdict = plan().verdict(&rows);
    assert_eq!(verdict.reason, Reason::NotShown, "{verdict:?}");
    let pairs = plan().pairs(&rows);
    assert_eq!(pairs, Some(verdict.pairs));
    let longer = Plan::new(parameters(), 40).unwrap();
    let continued = longer.clone().comparing(pairs);
    assert!(
        matches!(longer.next(&rows), Task::Run { .. }),
        "else nothing is tested"
    );
    assert_eq!(continued.next(&rows), Task::Done);
    assert_eq!(continued.verdict(&rows), verdict);
    // One that has not ended keeps its length, and one that has not begun gets the longer one.
    let begun = &rows[..rows.len() - 1];
    assert_eq!(plan().pairs(begun), pairs);
    assert_eq!(longer.comparing(pairs).pairs(begun), pairs);
    let searched = rows.iter().take_while(|row| row.phase == Phase::Search);
    assert_eq!(plan().pairs(&rows[..searched.count()]), None);
}

#[test]
fn runs_are_bounded_by_the_best_so_far() {
    let limit = |plan: &Plan, rows: &[Row]| match plan.next(rows) {
        Task::Run { limit, .. } => limit,
        Task::Done => panic!("there is a next run"),
    };
    let row = |figures: &[f64]| Row {
        phase: Phase::Search,
        setting: plan().start(),
        outcome: Outcome::Measured {
            value: 2.0,
            check: None,
            figures: figures.to_vec(),
        },
        seconds: 3.0,
    };
    assert_eq!(limit(&plan(), &[]), Limit::NONE);
    assert_eq!(limit(&plan(), &[row(&[])]), Limit::NONE);
    assert_eq!(
        limit(&plan(), &[row(&[2.0])]),
        Limit::by_figures(&[2.0], 2.0)
    );
    assert_eq!(
        limit(&plan().by_wall(true), &[row(&[])]),
        Limit::by_wall(2.0),
        "without the time of a preparation"
    );
}

#[test]
fn too_few_runs_are_refused() {
    let error = Plan::new(parameters(), 7).unwrap_err().to_string();
    assert!(
        error.contains("--runs 7 are too few") && error.contains("need 8"),
        "{error}"
    );
}
