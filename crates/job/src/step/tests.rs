//! Tests of step detection with the tensor sequences of realistic jobs.

use proptest::prelude::*;

use super::*;

fn allreduce(name: &str, elements: usize) -> Item {
    Item::new(name, OpKind::Allreduce, Dtype::F32, elements)
}

/// Sizes like those of a residual network: blocks of equal signatures, growing, one large layer at
/// the end.
fn resnet_like() -> Vec<Item> {
    let size = |tensor: usize| {
        if tensor == 160 {
            2_048_000
        } else {
            64 << (tensor / 16)
        }
    };
    (0..161)
        .map(|tensor| allreduce(&format!("layer{tensor}.weight"), size(tensor)))
        .collect()
}

/// Submits items; returns the positions at which steps were complete.
fn complete_at(finder: &mut PeriodFinder, items: impl IntoIterator<Item = Item>) -> Vec<usize> {
    let observed = items
        .into_iter()
        .map(|item| finder.observe(item))
        .enumerate();
    observed
        .filter(|(_, seen)| seen.step_complete)
        .map(|(at, _)| at)
        .collect()
}

fn repeated(step: &[Item], times: usize) -> impl Iterator<Item = Item> {
    step.iter().copied().cycle().take(step.len() * times)
}

#[test]
fn a_models_step_is_learnt_after_three_repeats_of_the_first() {
    let (mut finder, step) = (PeriodFinder::new(), resnet_like());
    // The first tensor of the fifth step shows that the fourth has ended.
    assert_eq!(complete_at(&mut finder, repeated(&step, 4)), [0usize; 0]);
    assert_eq!(finder.period(), None);
    assert_eq!(
        complete_at(&mut finder, repeated(&step, 3)),
        [160, 321, 482]
    );
    let bytes = step.iter().map(Item::bytes).sum();
    // The signature covers operations, types and sizes, in any order.
    let unnamed = step
        .iter()
        .rev()
        .map(|item| allreduce("", (item.bytes() / 4) as usize));
    let signature = unnamed.fold(0, |sum: u64, item| sum.wrapping_add(item.signature()));
    let period = Period {
        items: 161,
        bytes,
        signature,
        anchor: Some(4 * 2_048_000),
        named: true,
        foreign: 0,
    };
    assert_eq!(finder.period(), Some(period));
}

#[test]
fn the_anchor_comes_once_in_a_step() {
    let (mut finder, step) = (PeriodFinder::new(), resnet_like());
    complete_at(&mut finder, repeated(&step, 5));
    let anchors: Vec<usize> = step
        .iter()
        .map(|&item| finder.observe(item).anchor)
        .enumerate()
        .filter(|a| a.1)
        .map(|a| a.0)
        .collect();
    assert_eq!(anchors, [160]);
}

#[test]
fn a_thousand_equal_tensors_with_names_of_their_own_are_one_step() {
    let step: Vec<Item> = (0..1_000)
        .map(|tensor| allreduce(&format!("t{tensor}"), 256))
        .collect();
    let mut finder = PeriodFinder::new();
    complete_at(&mut finder, repeated(&step, 4));
    assert_eq!(complete_at(&mut finder, repeated(&step, 2)), [999, 1_999]);
}

#[test]
fn broadcasts_before_the_first_step_are_no_part_of_it() {
    let (mut finder, step) = (PeriodFinder::new(), resnet_like());
    let start = (0..161)
        .map(|tensor| Item::new(&format!("layer{tensor}"), OpKind::Broadcast, Dtype::F32, 64));
    assert_eq!(complete_at(&mut finder, start), [0usize; 0]);
    complete_at(&mut finder, repeated(&step, 4));
    assert_eq!(complete_at(&mut finder, repeated(&step, 1)), [160]);
}

#[test]
fn validation_passes_by_and_the_step_goes_on() {
    let (mut finder, step) = (PeriodFinder::new(), resnet_like());
    complete_at(&mut finder, repeated(&step, 6));
    for batch in 0..200 {
        let loss = finder.observe(allreduce("validation.loss", 1));
        assert!(loss.foreign && !loss.step_complete, "{batch}");
    }
    assert_eq!(complete_at(&mut finder, repeated(&step, 2)), [160, 321]);
}

#[test]
fn names_with_counters_come_along_without_being_waited_for() {
    let (mut finder, step) = (PeriodFinder::new(), resnet_like());
    let job = (0..20).flat_map(|k| {
        step.iter()
            .copied()
            .chain([allreduce(&format!("loss.{k}"), 1)])
    });
    let complete = complete_at(&mut finder, job);
    assert_eq!(complete, (4..20).map(|k| k * 162 + 160).collect::<Vec<_>>());
    assert_eq!(
        finder.period().map(|period| (period.items, period.foreign)),
        Some((161, 1))
    );
}

#[test]
fn gradient_accumulation_with_a_loss_for_each_micro_batch_is_one_step() {
    let gradients = resnet_like();
    let step: Vec<Item> = std::iter::repeat_n(allreduce("loss", 1), 4)
        .chain(gradients)
        .collect();
    let mut finder = PeriodFinder::new();
    complete_at(&mut finder, repeated(&step, 12));
    assert_eq!(complete_at(&mut finder, repeated(&step, 2)), [164, 329]);
}

#[test]
fn a_long_inner_loop_is_not_mistaken_for_a_step_for_ever() {
    let gradients = resnet_like();
    let step: Vec<Item> = std::iter::repeat_n(allreduce("loss", 1), 40)
        .chain(gradients)
        .collect();
    let mut finder = PeriodFinder::new();
    complete_at(&mut finder, repeated(&step, 60));
    assert_eq!(finder.period().map(|period| period.items), Some(201));
}

#[test]
fn a_tensor_that_comes_no_more_is_dropped_from_the_step() {
    let (mut finder, step) = (PeriodFinder::new(), resnet_like());
    complete_at(&mut finder, repeated(&step, 6));
    complete_at(&mut finder, repeated(&step[..100], 7));
    assert_eq!(finder.period().map(|period| period.items), Some(100));
    // The others become part of the step again when they are trained again.
    complete_at(&mut finder, repeated(&step, 16));
    assert_eq!(finder.period().map(|period| period.items), Some(161));
}

#[test]
fn one_named_tensor_is_a_step_and_one_nameless_is_not() {
    let mut finder = PeriodFinder::new();
    let complete = complete_at(&mut finder, repeated(&[allreduce("t", 1)], 100));
    assert!(complete.len() > 75 && complete.windows(2).all(|pair| pair[1] == pair[0] + 1));
    let mut finder = PeriodFinder::new();
    let nameless = (0..5_000).map(|k| allreduce(&format!("noname.{k}"), 1));
    assert_eq!(complete_at(&mut finder, nameless), [0usize; 0]);
    assert_eq!(finder.period(), None);
}

#[test]
fn a_model_without_names_is_recognized_by_its_sizes() {
    let sizes = [1_000, 10, 10, 64, 64, 64, 10, 500];
    let mut finder = PeriodFinder::new();
    let items = (0..4_000).map(|k| allreduce(&format!("noname.{k}"), sizes[k % 8]));
    let complete = complete_at(&mut finder, items);
    let first = *complete.first().unwrap();
    assert!(
        (NAMELESS_ITEMS - 1..NAMELESS_ITEMS + 8).contains(&first),
        "{first}"
    );
    assert_eq!(complete, (first..4_000).step_by(8).collect::<Vec<_>>());
    assert_eq!(first % 8, 7, "in step with the job");
    assert_eq!(
        finder.period().map(|period| (period.items, period.named)),
        Some((8, false))
    );
}

#[test]
fn equal_layers_without_names_are_no_step() {
    // Embedding, 12 layers of 4 tensors, head.
    let layers = std::iter::repeat_n([30, 30, 90, 5], 12).flatten();
    let sizes: Vec<usize> = [9_999].into_iter().chain(layers).chain([777]).collect();
    let mut finder = PeriodFinder::new();
    let items = (0..50 * 200).map(|k| allreduce(&format!("noname.{k}"), sizes[k % 50]));
    let complete = complete_at(&mut finder, items);
    assert_eq!(finder.period().map(|period| period.items), Some(50));
    assert!(
        complete
            .windows(2)
            .rev()
            .take(100)
            .all(|pair| pair[1] == pair[0] + 50)
    );
}

#[test]
fn a_tensor_of_the_next_step_may_overtake_the_last_of_this() {
    let (mut finder, step) = (PeriodFinder::new(), resnet_like());
    complete_at(&mut finder, repeated(&step, 5));
    let mut two: Vec<Item> = repeated(&step, 2).collect();
    two.swap(160, 161);
    assert_eq!(complete_at(&mut finder, two), [161, 321]);
    assert_eq!(complete_at(&mut finder, repeated(&step, 1)), [160]);
}

#[test]
fn a_set_of_tensors_that_grows_is_learnt_anew() {
    let (mut finder, mut step) = (PeriodFinder::new(), resnet_like());
    complete_at(&mut finder, repeated(&step, 5));
    step.push(allreduce("unfrozen", 5));
    complete_at(&mut finder, repeated(&step, 20));
    assert_eq!(
        finder.period().map(|period| (period.items, period.foreign)),
        Some((162, 0))
    );
}

#[test]
fn memory_is_bounded_though_names_and_sizes_never_repeat() {
    let mut finder = PeriodFinder::new();
    let mut most = 0;
    for k in 0..3 * PERIOD_ITEMS_MAX {
        finder.observe(allreduce(&k.to_string(), k));
        if let State::Searching(search) = &finder.state {
            most = most.max(search.held());
        }
    }
    // History, known names, and for the anonymous search its sequence and three maps of contexts.
    let limit = 6 * PERIOD_ITEMS_MAX + 16;
    assert!(
        (4 * PERIOD_ITEMS_MAX..=limit).contains(&most),
        "{most} of {limit}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn whatever_the_order_inside_a_step_its_end_is_found(
        tensors in 6usize..60,
        orders in proptest::collection::vec(any::<u64>(), 12),
    ) {
        let mut finder = PeriodFinder::new();
        for (step, seed) in orders.iter().enumerate() {
            let mut order: Vec<usize> = (0..tensors).collect();
            order.sort_by_key(|&tensor| mix(*seed, tensor as u64));
            let complete = complete_at(&mut finder, order.iter().map(|t| allreduce(&format!("t{t}"), 1 + t % 3)));
            if step >= 4 {
                prop_assert_eq!(complete, [tensors - 1]);
            }
        }
    }
}
