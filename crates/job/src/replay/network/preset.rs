//! Links between ranks, by their latency and bandwidth or by the name of a known network.

/// A link between two ranks: a message of n bytes takes `alpha_us` + n · `us_per_byte`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// Latency of one hop between two ranks, including software, µs.
    pub alpha_us: f64,
    /// Time per byte in one direction, µs.
    pub us_per_byte: f64,
}

impl Link {
    /// Creates a link from a latency and a bandwidth in GB/s (10⁹).
    pub fn new(alpha_us: f64, gb_per_s: f64) -> Self {
        Self {
            alpha_us,
            us_per_byte: 1e-3 / gb_per_s,
        }
    }

    /// Returns the bandwidth in one direction, GB/s.
    pub fn gb_per_s(self) -> f64 {
        1e-3 / self.us_per_byte
    }
}

/// Network with a name.
#[derive(Clone, Debug, PartialEq)]
pub struct Network {
    /// Name as written by the user.
    pub name: String,
    /// Link between hosts; for NVLink, between the devices of one host.
    pub link: Link,
    /// Source of the numbers; empty for numbers given by the user.
    pub source: &'static str,
}

/// Unknown or invalid network.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error(
    "`{text}` is not a network: give the latency of a hop in µs and the bandwidth in GB/s, such as 25,2.4 (more than 0, at most \
     1000000 each), or one of {}", Network::names().collect::<Vec<_>>().join(", ")
)]
pub struct NetworkError {
    /// Text given by the user.
    pub text: String,
}

/// Name, latency of a hop in µs, GB/s in one direction, source.
///
/// Bandwidths are the line rate less protocol overhead: 94 % for Ethernet (frames of 1,500 bytes
/// with TCP/IP headers), 97 % for InfiniBand. Latencies are those of one hop of a collective, from
/// one process to the next, not those of a cable.
type Preset = (&'static str, f64, f64, &'static str);

const TCP: &str = "IEEE 802.3 line rate less 6 % for headers; 25 to 60 µs from process to process over TCP through the kernel";
const VERBS: &str = "IBTA signalling rate less 3 %; a hop of a ring over the network as NCCL's tuning model has it (src/graph/tuning.cc: \
                     network, ring, simple protocol 9.6 µs)";
const NVLINK: &str = "NVIDIA's data sheets, one way per GPU, of which NCCL reaches some 80 %; a hop as NCCL's tuning model has it \
                      (src/graph/tuning.cc: NVLink, ring, simple protocol 3.4 µs)";

const PRESETS: [Preset; 11] = [
    ("1gbe", 60.0, 0.117, TCP),
    ("10gbe", 30.0, 1.17, TCP),
    ("25gbe", 25.0, 2.94, TCP),
    ("40gbe", 25.0, 4.7, TCP),
    ("100gbe", 25.0, 11.7, TCP),
    ("ib-edr", 9.6, 12.1, VERBS),
    ("ib-hdr", 9.6, 24.2, VERBS),
    ("ib-ndr", 9.6, 48.5, VERBS),
    ("nvlink", 3.4, 240.0, NVLINK),  // NVLink 3 (A100): 300
    ("nvlink2", 3.4, 120.0, NVLINK), // V100: 150
    ("nvlink4", 3.4, 360.0, NVLINK), // H100: 450
];

/// Maximum latency in µs and maximum bandwidth in GB/s.
const MOST: f64 = 1e6;

impl Network {
    /// Returns the known names.
    pub fn names() -> impl Iterator<Item = &'static str> {
        PRESETS.iter().map(|preset| preset.0)
    }

    /// Parses a name, or latency and bandwidth separated by a comma.
    ///
    /// # Errors
    /// [`NetworkError`] for anything else.
    pub fn parse(text: &str) -> Result<Self, NetworkError> {
        let text = text.trim();
        if let Some(&(name, alpha_us, gb_per_s, source)) = PRESETS
            .iter()
            .find(|preset| preset.0.eq_ignore_ascii_case(text))
        {
            return Ok(Self {
                name: name.to_owned(),
                link: Link::new(alpha_us, gb_per_s),
                source,
            });
        }
        let wrong = || NetworkError {
            text: text.to_owned(),
        };
        let number = |text: &str| {
            text.trim()
                .parse::<f64>()
                .ok()
                .filter(|value| *value <= MOST)
        };
        let (alpha, speed) = text.split_once(',').ok_or_else(wrong)?;
        let alpha_us = number(alpha).filter(|us| *us >= 0.0).ok_or_else(wrong)?;
        let gb_per_s = number(speed).filter(|gb| *gb >= 1e-6).ok_or_else(wrong)?;
        Ok(Self {
            name: format!("{alpha_us} µs, {gb_per_s} GB/s"),
            link: Link::new(alpha_us, gb_per_s),
            source: "",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn networks_have_names_or_numbers() {
        let named = Network::parse("25GbE").unwrap();
        assert_eq!((named.name.as_str(), named.link.alpha_us), ("25gbe", 25.0));
        assert!((named.link.gb_per_s() - 2.94).abs() < 1e-12);
        let given = Network::parse(" 1000, 2.5 ").unwrap();
        assert_eq!(given.link, Link::new(1000.0, 2.5));
        // 2.5 GB/s are 2,500 bytes per µs.
        assert!((given.link.us_per_byte * 2500.0 - 1.0).abs() < 1e-12);
        for bad in [
            "", "25", "25gbee", "-1,2", "1,0", "1,nan", "inf,1", "1,2,3", "1e9,1",
        ] {
            let error = Network::parse(bad).unwrap_err().to_string();
            assert!(
                error.contains("ib-hdr") && error.contains(&format!("`{bad}`")),
                "{error}"
            );
        }
        // No preset is faster than its line rate.
        for (line_gbit, name) in [
            (1.0, "1gbe"),
            (25.0, "25gbe"),
            (100.0, "ib-edr"),
            (400.0, "ib-ndr"),
        ] {
            assert!(
                Network::parse(name).unwrap().link.gb_per_s() < line_gbit / 8.0,
                "{name}"
            );
        }
    }

    proptest! {
        #[test]
        fn whatever_is_given_is_a_finite_network_or_none(text in ".{0,20}") {
            if let Ok(network) = Network::parse(&text) {
                prop_assert!(network.link.alpha_us >= 0.0 && network.link.us_per_byte.is_finite());
            }
        }
    }
}
