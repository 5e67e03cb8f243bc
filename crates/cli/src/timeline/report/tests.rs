use super::*;

use console::{measure_text_width, strip_ansi_codes};
use ronde_trace::analysis::report::StragglerRank;

const LOOK: Look = Look {
    unicode: true,
    ..Look::PLAIN
};

const SAMPLE: &str = "\
t.json  Ronde, rank 0, 2026-11-21T22:31:05.250Z: 1,234 events, 15 operations on
        3 tensors, 215 ms
t.rank1.json  Ronde, rank 1: 1,234 events, 15 operations on 3 tensors, 215 ms;
              clock +12.5 µs, error at most 4.0 µs
  ! the file ends inside an event (line 7, byte 1200)
  ! the recorder dropped 1 cycle for lack of space

5 steps on rank 0 of 2 (marked in the file; 1 skipped: other operations in
between, or incomplete)
  step time  from step  steps  median ms    p10    p90    p99
  start-up           0      1      80.00  72.00  88.00  96.00
  steady             1      3      40.00  36.00  44.00  48.00

Parts of a step
  start-up ░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░▚▚▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▖████████▝
  steady   ░░░░░░░░░░░░░░░░░░░░░▚▚▒▖█████████▝
     part               median ms    p90  share  hidden ms
  ░  computation            24.00  26.40   60 %
  ▚  waiting for ranks       3.00   3.30  7.5 %
  ▒  negotiation             2.00   2.20  5.0 %
  ▖  copying in              0.40   0.44  1.0 %
  █  collective             10.00  11.00   25 %       6.00
  ▝  copying out             0.60   0.66  1.5 %
     step                   40.00  44.00  100 %
  Communication: 17.0 ms a step, 35 % of it overlaps computation (computation is
  assumed to last until the rank's last tensor is ready).
  From ready on all ranks to the start of the batch, median: cached tensors 50.0
  µs (p90 55.0 µs), new ones 0.150 ms (p90 0.165 ms).

Stragglers
  rank  last              lag ms   p90  step without it  cost ms
     0  25 %  ██▌           0.00  0.00            40.00     0.00
     1  75 %  ███████▌      3.00  3.30            37.00     3.00
  Of 12 operations whose ready times are known on every rank, rank 1 was last
  for 75 %: without it a step would be 3.00 ms shorter.
  tensor that waits longest  first to last ms   p90  last rank  share
  fc.weight                              3.20  3.52          1  100 %

Tensor fusion
  2 batches a step, each of 2 tensors and 3.81 MiB (medians); fusion threshold
  128 MiB; cycle time 1 ms.
  bytes from      to  batches  tensors
        16 B    32 B        4        4  ████████████████████████
       8 MiB  16 MiB        4        8  ████████████████████████
  end of a batch             batches  share
  no other tensor was ready        4   50 %  ████████████
  last of the step                 4   50 %  ████████████

Bandwidth of the collectives
  SHM_ALLREDUCE: time = 200.0 µs + 400.0 µs a MiB (2.62 GB/s), median error
  2.0 %
   size  batches  median µs    p10    p90   GB/s
  1 MiB        4        600    540    660  1.748  █████████████████
  8 MiB        4      3,400  3,060  3,740  2.467  ████████████████████████

Tensors that take longest from ready to result
  tensor        operation  type      elements  ready ms  takes ms    p90
  fc.weight     allreduce  float32  2,048,000      5.00     12.00  13.20
  conv1.weight  allreduce  float32      9,408     20.00      4.00   4.40
  metrics       allgather  float32          4     21.00      1.00   1.10

Warnings
  ! The clocks may be wrong by 0.5 ms.

Advice
  1. Rank 1 is last for 75 % of the tensors and costs 3.0 ms of the 40.0 ms of a
     step: look at its input pipeline and its machine first.
";

#[test]
fn the_whole_report() {
    assert_eq!(text(&sample::report(), &LOOK), SAMPLE);
}

#[test]
fn colours_change_nothing_else() {
    let colours = Look {
        colours: true,
        ..LOOK
    };
    let shown = text(&sample::report(), &colours);
    assert_ne!(shown, SAMPLE);
    assert_eq!(strip_ansi_codes(&shown), SAMPLE);
}

#[test]
fn a_small_terminal_without_unicode_will_do() {
    let small = Look {
        width: 72,
        unicode: false,
        ..LOOK
    };
    let shown = text(&sample::report(), &small);
    assert!(shown.is_ascii(), "{shown}");
    let widest = shown.lines().map(measure_text_width).max().unwrap();
    assert!(widest <= 72, "{shown}");
}

#[test]
fn what_is_not_there_is_left_out() {
    assert_eq!(
        text(&sample::empty(), &LOOK),
        "t.json  Ronde, rank 0, 2026-11-21T22:31:05.250Z: 1,234 events, 0 operations on 0\n        \
         tensors, 215 ms\n\n\
         No step was found: the file has no operation.\n"
    );
}

#[test]
fn a_name_cannot_command_the_terminal() {
    let mut evil = sample::report();
    evil.tensors[1].name = "fc\x1b[2J\n".to_owned();
    evil.sources[0].path = "\x07.json".to_owned();
    evil.advice[0].sentence = "Look at \x1b]0;x".to_owned();
    evil.warnings[0].push('\r');
    evil.bandwidth[0].activity.push('\x08');
    let shown = text(&evil, &LOOK);
    assert!(
        !shown.chars().any(|c| c.is_control() && c != '\n'),
        "{shown:?}"
    );
}

#[test]
fn of_many_ranks_those_that_cost_most_are_shown() {
    let mut large = sample::report();
    let stragglers = large.stragglers.as_mut().unwrap();
    let rank = stragglers.ranks[0].clone();
    stragglers.ranks = (0..20)
        .map(|number| StragglerRank {
            rank: number,
            cost_ms: f64::from(number),
            ..rank.clone()
        })
        .collect();
    let shown = text(&large, &LOOK);
    let rows: Vec<u32> = shown
        .lines()
        .skip_while(|line| *line != "Stragglers")
        .skip(2)
        .map_while(|line| line.split_whitespace().next()?.parse().ok())
        .collect();
    assert_eq!(rows, (8..20).collect::<Vec<_>>());
    assert!(shown.contains("… and 8 ranks that cost less"), "{shown}");
}
