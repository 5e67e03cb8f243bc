//! Gathering of packed frames on a simulated network: messages arrive in random order and in
//! pieces, and hosts are lost at random times. A failure names its seed.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use ronde_net::simulated::Network;

use super::*;

/// Polls and deliveries after which a run counts as stuck.
const STEPS_MAX: usize = 1_000_000;

type Gathered = Result<Result<Vec<Vec<u8>>, usize>, CommError>;

/// Gathers `packed`, one of each host, on the first host; loses a host before step `lost_at`, if
/// any. Returns how each host's part has ended.
fn gather(
    seed: u64,
    network: &Network,
    comms: Vec<Comm>,
    packed: &[Vec<u8>],
    limits: &[usize],
    lost_at: Option<usize>,
) -> Vec<Gathered> {
    let mut runs: Vec<Option<Pin<Box<dyn Future<Output = Gathered> + '_>>>> = (comms.into_iter())
        .zip(packed)
        .enumerate()
        .map(|(host, (comm, packed))| {
            Some(Box::pin(gather_packed(comm, packed.clone(), host == 0, limits)) as _)
        })
        .collect();
    let mut ended: Vec<Option<Gathered>> = runs.iter().map(|_| None).collect();
    for step in 0..STEPS_MAX {
        if ended.iter().all(Option::is_some) {
            return ended.into_iter().flatten().collect();
        }
        if lost_at == Some(step) {
            network.lose(network.draw(packed.len()));
        }
        if network.draw(2) == 0 && network.deliver() {
            continue;
        }
        let host = network.draw(packed.len());
        let Some(run) = &mut runs[host] else {
            continue;
        };
        if let Poll::Ready(outcome) = run.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            runs[host] = None;
            ended[host] = Some(outcome);
        }
    }
    panic!("seed {seed}: stuck, ended: {ended:?}");
}

#[test]
fn packed_frames_arrive_whole_and_in_order_or_the_gathering_fails() {
    let mut failed = 0;
    for seed in 0..200 {
        let count = 2 + seed as usize % 5;
        let network = Network::new(count, seed);
        let comms = (0..count).map(|host| Comm::simulated(network.comm(host, 9)));
        let packed: Vec<Vec<u8>> = (0..count)
            .map(|host| {
                let bytes = [0, 5_000, 300_000][network.draw(3)];
                pack(&[vec![host as u8; network.draw(bytes + 1)]])
            })
            .collect();
        let limits = vec![packed_bytes_max(1); count];
        let lost_at = (seed % 3 == 0).then(|| network.draw(40));
        let ended = gather(seed, &network, comms.collect(), &packed, &limits, lost_at);
        assert!(
            lost_at.is_some() || ended.iter().all(Result::is_ok),
            "seed {seed}"
        );
        failed += ended.iter().filter(|outcome| outcome.is_err()).count();
        if let Ok(outcome) = &ended[0] {
            assert_eq!(outcome.as_ref(), Ok(&packed), "seed {seed}");
        }
    }
    assert!(failed > 0, "no host was lost in time");
}

#[test]
fn a_host_that_announces_more_than_its_limit_is_named_before_it_sends() {
    let network = Network::new(3, 1);
    let comms = (0..3).map(|host| Comm::simulated(network.comm(host, 9)));
    let packed = [vec![1; 10], vec![2; 10], vec![3; 11]];
    // The others' sends end when the network does.
    let lost_at = Some(5_000);
    let ended = gather(1, &network, comms.collect(), &packed, &[10; 3], lost_at);
    assert_eq!(ended[0], Ok(Err(2)));
}
