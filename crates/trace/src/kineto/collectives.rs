//! Collectives of a profiler's trace: joins a kernel on the GPU, the CPU call that launched it, and
//! the annotation and description around that call.

use smallvec::smallvec;

use super::super::model::{Activity, Kind, NameId, Operation, Phase, Span, Tick};
use super::super::reader::Out;
use super::super::vocabulary;
use super::Kineto;
use super::description::Description;
use super::occurrence;

/// Maximum nesting of annotations around one call; the search stops there.
const NESTING_MAX: usize = 16;

/// An NCCL kernel.
#[derive(Debug)]
pub(super) struct Kernel {
    pub(super) name: NameId,
    pub(super) text: Box<str>,
    pub(super) span: Span,
    /// Number of the GPU, if the event has one.
    pub(super) device: Option<u64>,
    /// Correlation number, shared with the launch.
    pub(super) correlation: Option<u64>,
    pub(super) description: Option<Description>,
}

/// A span on the CPU.
#[derive(Debug)]
pub(super) struct Annotation {
    pub(super) name: Box<str>,
    pub(super) span: Span,
    pub(super) thread: u32,
    pub(super) description: Option<Description>,
}

/// A call that launched a kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Launch {
    pub(super) correlation: u64,
    pub(super) thread: u32,
    pub(super) at: i64,
}

/// Returns the innermost span around a time; `spans` are sorted by thread and start.
fn around(spans: &[Annotation], thread: u32, at: i64) -> Option<&Annotation> {
    let after = spans.partition_point(|span| (span.thread, span.span.began) <= (thread, at));
    let before = spans[..after].iter().rev().take(NESTING_MAX);
    let mut same = before.take_while(|span| span.thread == thread);
    same.find(|span| at <= span.span.ended)
}

/// Returns all collectives.
///
/// A process group names all tensors after the operation. Therefore each collective is named by its
/// occurrence within the step, `nccl:all_reduce #2`, counted in order of submission: within the
/// marked `steps`, or else within the repeating sequence of operations.
pub(super) fn operations(mut trace: Kineto, steps: &[Span], out: &mut Out<'_>) -> Vec<Operation> {
    let by_thread = |span: &Annotation| {
        (
            span.thread,
            span.span.began,
            std::cmp::Reverse(span.span.ended),
        )
    };
    trace.annotations.sort_by_key(by_thread);
    trace.parameters.sort_by_key(by_thread);
    trace
        .launches
        .sort_unstable_by_key(|launch| launch.correlation);
    let mut calls = Vec::with_capacity(trace.kernels.len());
    for kernel in &trace.kernels {
        calls.push(of_kernel(kernel, &trace, out));
    }
    for annotation in &trace.annotations {
        // An `nccl:` annotation lasts as long as the call, not as long as the collective: it is
        // used only without GPU events.
        if !(trace.has_gpu && annotation.name.starts_with("nccl:")) {
            calls.push(of_annotation(annotation, &trace, out));
        }
    }
    calls.sort_by_key(|call| call.submitted);
    occurrence::name(&mut calls, steps, out);
    calls.into_iter().map(|call| call.operation).collect()
}

/// A collective with the data by which its occurrence is counted.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) called: Box<str>,
    /// Time at which the host submitted it; if unknown, its start.
    pub(super) submitted: i64,
    pub(super) operation: Operation,
}

fn of_kernel(kernel: &Kernel, trace: &Kineto, out: &mut Out<'_>) -> Call {
    let launch = kernel.correlation.and_then(|correlation| {
        let found = trace
            .launches
            .binary_search_by_key(&correlation, |launch| launch.correlation);
        found.ok().map(|position| trace.launches[position])
    });
    let find = |spans| launch.and_then(|launch| around(spans, launch.thread, launch.at));
    let (annotation, parameters) = (find(&trace.annotations), find(&trace.parameters));
    let description = kernel
        .description
        .clone()
        .unwrap_or_default()
        .or(annotation.and_then(|span| span.description.as_ref()))
        .or(parameters.and_then(|span| span.description.as_ref()));
    let submitted = annotation.or(parameters).map(|span| span.span.began);
    let submitted = submitted.or(launch.map(|launch| launch.at));
    let called = description.collective.as_deref();
    let called = called
        .or(annotation.map(|span| &*span.name))
        .unwrap_or(&kernel.text);
    let mut operation = operation(called, &description, kernel.name, kernel.span);
    if operation.kind == Kind::Other {
        operation.kind = vocabulary::torch_kind(&kernel.text);
    }
    // The host submits collectives long before the GPU reaches them, so the rank is ready when its
    // kernel begins.
    operation.ticks = tick(kernel.span.began, out).into_iter().collect();
    let submitted = submitted.unwrap_or(kernel.span.began);
    if submitted < kernel.span.began {
        operation.activities.push(Activity {
            name: out.name("QUEUE"),
            phase: Phase::Queue,
            span: Span {
                began: submitted,
                ended: kernel.span.began,
            },
        });
    }
    Call {
        called: called.into(),
        submitted,
        operation,
    }
}

fn of_annotation(annotation: &Annotation, trace: &Kineto, out: &mut Out<'_>) -> Call {
    let parameters = around(&trace.parameters, annotation.thread, annotation.span.began);
    let description = annotation
        .description
        .clone()
        .unwrap_or_default()
        .or(parameters.and_then(|span| span.description.as_ref()));
    let name = out.name(&annotation.name);
    let mut operation = operation(&annotation.name, &description, name, annotation.span);
    operation.ticks = tick(annotation.span.began, out).into_iter().collect();
    Call {
        called: annotation.name.clone(),
        submitted: annotation.span.began,
        operation,
    }
}

/// Tick of this rank at `at`, if the rank is known.
fn tick(at: i64, out: &Out<'_>) -> Option<Tick> {
    let rank = out.source.rank?;
    Some(Tick { rank, at })
}

fn operation(called: &str, description: &Description, activity: NameId, span: Span) -> Operation {
    let kind = vocabulary::torch_kind(called);
    let elements = description.output(kind);
    let bytes = elements
        .zip(description.element_bytes)
        .and_then(|(elements, size)| elements.checked_mul(size));
    Operation {
        tensor: activity,
        kind,
        negotiation: None,
        ticks: smallvec![],
        execution: Some(span),
        activities: smallvec![Activity {
            name: activity,
            phase: Phase::Collective,
            span,
        }],
        sums: None,
        dtype: description.dtype,
        elements,
        bytes,
        refused: false,
    }
}
