use super::*;
use proptest::prelude::*;

const FULL: &str = "hierarchical_allreduce,hierarchical_allgather,torus_allreduce,cache_enabled,cycle_time_ms,tensor_fusion_threshold,score\n";

#[test]
fn horovods_rows_with_the_blank_before_the_fourth_field() {
    let log = read_log(&format!(
        "{FULL}0,1,0, 1,5,4,142.105\n1,0,0, 0,1.00122,10.17,445.7\n"
    ))
    .unwrap();
    let row = LogRow {
        line: 2,
        hierarchical_allreduce: Some(false),
        hierarchical_allgather: Some(true),
        torus_allreduce: Some(false),
        cache_enabled: Some(true),
        cycle_time_ms: Some(5.0),
        fusion_mb: Some(4.0),
        score: Some(142.105),
        ..LogRow::default()
    };
    assert_eq!((&log.rows[0], log.rows.len(), log.best), (&row, 2, None));
    assert_eq!(
        (log.warnings.len(), log.is_ronde, log.trials().count()),
        (0, false, 2)
    );
}

#[test]
fn older_columns_and_other_orders() {
    let oldest = read_log("tensor_fusion_threshold,cycle_time_ms,score\n64,5,100\n").unwrap();
    assert_eq!(oldest.rows[0].fusion_mb, Some(64.0));
    assert_eq!(
        (oldest.rows[0].cache_enabled, oldest.rows[0].torus_allreduce),
        (None, None)
    );
    let foreign =
        read_log("host,cycle_time_ms,tensor_fusion_threshold,score\r\na b,5,64,100\r\n").unwrap();
    assert_eq!(
        (foreign.rows[0].cycle_time_ms, foreign.warnings.len()),
        (Some(5.0), 0)
    );
}

#[test]
fn the_best_row_is_the_repeated_trial_of_the_highest_score() {
    let of = |rows: &str| read_log(&format!("{FULL}{rows}")).unwrap();
    let finished = of("0,0,0, 1,5,4,100\n0,0,0, 1,9,8,300\n0,0,0, 1,7,7,200\n0,0,0, 1,9,8,300\n");
    assert_eq!((finished.best, finished.trials().count()), (Some(3), 3));
    // Everything fixed: the same setting again and again, but the scores differ.
    let stopped = of("0,0,0, 1,5,4,100\n0,0,0, 1,5,4,300\n0,0,0, 1,5,4,200\n");
    assert_eq!((stopped.best, stopped.trials().count()), (None, 3));
}

#[test]
fn our_log_ends_with_best() {
    let header = format!(
        "{},phase,sample,steps,step_ms_p50,step_ms_ci95,predicted_step_ms,negotiate_share\n",
        FULL.trim_end()
    );
    let rows = "0,0,0,1,1,128,500,default,0,10,61.2,0.5,,0.02\n0,0,0,1,1,4,600,sample,1,10,51,0.5,50.4,0.02\n0,0,0,1,1,4,600,best,1,,51,0.5,,0.02\n";
    let log = read_log(&(header + rows)).unwrap();
    assert!(
        log.is_ronde && log.warnings.is_empty(),
        "{:?}",
        log.warnings
    );
    assert_eq!((log.best, log.trials().count()), (Some(2), 2));
    let sample = &log.rows[1];
    assert_eq!(
        (sample.phase.as_deref(), sample.sample, sample.steps),
        (Some("sample"), Some(1), Some(10))
    );
    assert_eq!(
        (
            sample.step_ms_p50,
            sample.predicted_step_ms,
            log.rows[0].predicted_step_ms
        ),
        (Some(51.0), Some(50.4), None)
    );
}

#[test]
fn what_a_spreadsheet_saves() {
    let text = format!("{FULL}0,1,0,1,5.5,4,1142.25\n")
        .replace(',', ";")
        .replace('.', ",");
    let log = read_log(&format!("\u{feff}{}", text.replace('\n', "\r\n"))).unwrap();
    let row = &log.rows[0];
    assert_eq!(
        (row.hierarchical_allgather, row.cycle_time_ms, row.score),
        (Some(true), Some(5.5), Some(1142.25))
    );
    assert!(log.warnings.is_empty(), "{:?}", log.warnings);
    let tabs =
        read_log("cycle_time_ms\ttensor_fusion_threshold\tscore\t\t\n1.5\t64\t100\t\t\n\t\t\t\t\n")
            .unwrap();
    assert_eq!(
        (tabs.rows.len(), tabs.rows[0].cycle_time_ms),
        (1, Some(1.5))
    );
    // Between commas, a comma is none of a number's.
    let commas = read_log(&format!("{FULL}0,1,0,1,\"5,5\",4,100\n")).unwrap();
    assert_eq!(
        (commas.rows[0].cycle_time_ms, commas.warnings.len()),
        (None, 1)
    );
}

#[test]
fn several_logs_in_one_file() {
    let text = format!("{FULL}0,0,0,1,5,4,100\n{FULL}0,0,0,1,5,4,200\n0,0,0,1,9,8\n{FULL}");
    let logs = read_logs(&text).unwrap();
    let rows: Vec<usize> = logs.iter().map(|log| log.rows.len()).collect();
    assert_eq!(rows, [1, 1, 0]);
    assert_eq!(logs[1].rows[0].line, 4);
    assert_eq!(
        logs[1].warnings[0].to_string(),
        "line 5 is cut off (6 of 7 fields) and left out"
    );
    // The one to go by is the last with anything in it.
    assert_eq!(read_log(&text).unwrap(), logs[1]);
    assert_eq!(read_logs(FULL).unwrap().len(), 1);
}

#[test]
fn warnings_beyond_the_hundredth_are_counted() {
    let log = read_log(&format!("{FULL}{}", "0,0,0\n".repeat(250))).unwrap();
    assert_eq!((log.warnings.len(), log.warnings_more), (100, 150));
}

#[test]
fn what_is_left_out_is_named_by_line() {
    let text = format!(
        "{FULL}0,0,0, 1,5,4,100\n0,0,0\n0,0,yes, 1,-5,4,nan\n0,0,0, 1,5,4,100,7\n\n0,0,0, 1,5,4,20"
    );
    let log = read_log(&text).unwrap();
    assert_eq!(log.rows.len(), 2);
    assert_eq!(
        (
            log.rows[1].line,
            log.rows[1].torus_allreduce,
            log.rows[1].score
        ),
        (4, None, None)
    );
    let warnings: Vec<String> = log.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        warnings,
        [
            "line 3 is cut off (3 of 7 fields) and left out",
            "line 4: torus_allreduce is \"yes\", expected 0 or 1",
            "line 4: cycle_time_ms is \"-5\", expected a number >= 0",
            "line 4: score is \"nan\", expected a number >= 0",
            "line 5 has 8 fields where the header has 7, and is left out",
            "line 7 has no line end, so its last field may be cut off, and is left out",
        ]
    );
}

#[test]
fn lines_that_end_as_on_old_macs_are_counted() {
    let text = format!("{FULL}\n0,0,0, 1,5,4,100\n0,0,0\n").replace('\n', "\r");
    let log = read_log(&text).unwrap();
    assert_eq!(log.rows[0].line, 3);
    assert_eq!(
        log.warnings[0].to_string(),
        "line 4 is cut off (3 of 7 fields) and left out"
    );
}

#[test]
fn a_line_end_within_quotes_does_not_end_the_row() {
    let text =
        "host,cycle_time_ms,tensor_fusion_threshold,score\n\"a\nb\",5,64,100\n\"a\nb\",5,64,10";
    let log = read_log(text).unwrap();
    assert_eq!((log.rows.len(), log.rows[0].line), (1, 2));
    assert_eq!(
        log.warnings[0].to_string(),
        "line 4 has no line end, so its last field may be cut off, and is left out"
    );
}

#[test]
fn texts_that_are_no_logs() {
    assert_eq!(read_log(""), Err(LogError::Empty));
    assert_eq!(read_log("\n\n"), Err(LogError::Empty));
    let error = read_log("a,b\n1,2\n").unwrap_err().to_string();
    assert_eq!(
        error,
        "not an autotune log: the header (line 1) has no cycle_time_ms, tensor_fusion_threshold, score; it is \"a,b\""
    );
    let header_only = read_log(FULL).unwrap();
    assert_eq!((header_only.rows.len(), header_only.best), (0, None));
}

#[test]
fn a_public_log_of_2018() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../tests/fixtures/horovod-autotune.csv"
    );
    let text = std::fs::read_to_string(path).unwrap();
    let log = read_log(&text).unwrap();
    assert_eq!((log.columns.len(), log.rows[0].torus_allreduce), (6, None));
    assert_eq!(
        (
            log.rows[7].cycle_time_ms,
            log.rows[7].fusion_mb,
            log.rows[7].score
        ),
        (Some(25.1083), Some(14.81), Some(549.07))
    );
    assert!(
        log.warnings.len() <= 1 && log.rows.len() >= 36,
        "{} {:?}",
        log.rows.len(),
        log.warnings
    );
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "[0-9a-z,.\"\n\r -]{0,300}", with_header: bool) {
        let text = if with_header { format!("{FULL}{text}") } else { text };
        for log in read_logs(&text).unwrap_or_default() {
            prop_assert!(log.best.is_none_or(|best| best < log.rows.len()));
            prop_assert!(log.trials().count() <= log.rows.len());
            let lines = text.matches(['\n', '\r']).count() as u64 + 1;
            prop_assert!(log.rows.iter().all(|row| (1..=lines).contains(&row.line)), "{:?}", log.rows);
        }
    }

    #[test]
    fn a_log_cut_anywhere_keeps_its_whole_rows(cut in 0usize..200) {
        let whole = format!("{FULL}0,0,0, 1,5,4,100.5\n0,0,0, 1,9,8,300.25\n0,0,0, 1,7,7,200.125\n");
        let cut = &whole[..(FULL.len() + cut).min(whole.len())];
        let log = read_log(cut).unwrap();
        let whole_rows = cut.lines().count() - 1 - usize::from(!cut.ends_with('\n'));
        prop_assert_eq!(log.rows.len(), whole_rows);
        prop_assert!(log.rows.iter().all(|row| [Some(100.5), Some(300.25), Some(200.125)].contains(&row.score)));
        prop_assert_eq!(log.warnings.len(), usize::from(!cut.ends_with('\n')));
    }
}
