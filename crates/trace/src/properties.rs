//! Property tests of the readers: recordings cut or damaged at any place.

use proptest::prelude::*;

use super::model::{Format, Operation};
use super::testing::{Told, told_by};

/// Events of one tensor in one step.
#[derive(Clone, Copy, Debug)]
struct Step {
    tensor: u32,
    ranks: u32,
    us: i64,
    activities: usize,
    marked: bool,
}

fn step() -> impl Strategy<Value = Step> {
    (
        1_u32..6,
        0_u32..4,
        0_i64..1_000_000,
        0_usize..4,
        any::<bool>(),
    )
        .prop_map(|(tensor, ranks, us, activities, marked)| Step {
            tensor,
            ranks,
            us,
            activities,
            marked,
        })
}

/// A recording of steps in Horovod's format.
fn recording(steps: &[Step]) -> String {
    let mut text = "[\n".to_owned();
    for tensor in 1..6 {
        text += &format!(
            "{{\"name\": \"process_name\", \"ph\": \"M\", \"pid\": {tensor}, \"args\": {{\"name\": \"t{tensor}\"}}}},\n"
        );
    }
    for &Step {
        tensor: pid,
        ranks,
        us,
        activities,
        marked,
    } in steps
    {
        if marked {
            text += &format!(
                "{{\"ph\": \"i\", \"name\": \"CYCLE_START\", \"ts\": {us}, \"s\": \"g\"}},"
            );
        }
        text += &format!(
            "{{\"ph\": \"B\", \"name\": \"NEGOTIATE_ALLREDUCE\", \"ts\": {us}, \"pid\": {pid}}},"
        );
        for rank in 0..ranks {
            text += &format!(
                "{{\"ph\": \"X\", \"name\": \"{rank}\", \"ts\": {us}, \"pid\": {pid}, \"dur\": 0}},"
            );
        }
        text += &format!("{{\"ph\": \"E\", \"ts\": {us}, \"pid\": {pid}}},");
        text +=
            &format!("{{\"ph\": \"B\", \"name\": \"ALLREDUCE\", \"ts\": {us}, \"pid\": {pid}}},");
        for _ in 0..activities {
            text += &format!(
                "{{\"ph\": \"B\", \"name\": \"MPI_ALLREDUCE\", \"ts\": {us}, \"pid\": {pid}}},"
            );
            text += &format!("{{\"ph\": \"E\", \"ts\": {}, \"pid\": {pid}}},", us + 1);
        }
        let ended = us + activities as i64;
        text += &format!(
            "{{\"ph\": \"E\", \"ts\": {ended}, \"pid\": {pid}, \"args\": {{\"dtype\": \"float32\", \"shape\": \"[{pid}]\"}}}},\n"
        );
    }
    text
}

/// Executed operations: after a cut, the last one may lack its execution.
fn executed(told: &Told) -> Vec<Operation> {
    let executed = |operation: &&Operation| operation.execution.is_some();
    told.operations.iter().filter(executed).cloned().collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn whatever_is_cut_off_the_rest_is_the_same(steps in prop::collection::vec(step(), 1..12), cut in any::<prop::sample::Index>()) {
        let text = recording(&steps);
        let (whole, source) = told_by(text.as_bytes(), None).unwrap();
        prop_assert_eq!(source.warnings, Vec::<String>::new());
        prop_assert_eq!(whole.operations.len(), steps.len());
        let cut = cut.index(text.len());
        if let Ok((part, source)) = told_by(&text.as_bytes()[..cut], None) {
            let (part, whole) = (executed(&part), executed(&whole));
            prop_assert_eq!(&part[..], &whole[..part.len()]);
            // All steps that are complete before the cut must be found.
            let lines = text[..cut].matches("\"float32\"").count();
            prop_assert!(part.len() + 1 >= lines, "{} {lines} {:?}", part.len(), source.warnings);
        } else {
            prop_assert!(cut < 80, "the first event is there");
        }
    }

    #[test]
    fn one_damaged_place_costs_one_operation_at_most_beside_its_own(
        steps in prop::collection::vec(step(), 3..12),
        place in any::<prop::sample::Index>(),
        junk in prop::collection::vec(any::<u8>(), 1..20),
    ) {
        let text = recording(&steps);
        let mut damaged = text.clone().into_bytes();
        let first = text.find("\"B\"").unwrap();
        let at = first + place.index(text.len() - first);
        damaged.splice(at..at, junk);
        let (told, _) = told_by(&damaged, None).unwrap();
        // Lost at most: the damaged event's operation and, if the two are merged, the next one of
        // its tensor.
        prop_assert!(executed(&told).len() + 2 >= steps.len(), "{} of {}", told.operations.len(), steps.len());
    }

    #[test]
    fn any_bytes_in_any_place_are_borne(
        steps in prop::collection::vec(step(), 1..6),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..40),
        cut in any::<prop::sample::Index>(),
        format in prop::sample::select(vec![None, Some(Format::Horovod), Some(Format::Byteps), Some(Format::Kineto)]),
    ) {
        let mut bytes = recording(&steps).into_bytes();
        for (place, byte) in changes {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        bytes.truncate(cut.index(bytes.len()) + 1);
        // The visitor checks the order of its calls.
        let _ = told_by(&bytes, format);
    }
}
