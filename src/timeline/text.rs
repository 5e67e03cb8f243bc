//! Writer of JSON text for the timeline: numbers and constants are written several times as fast as
//! by `write!` or a serializer.

/// Appends JSON to a text.
pub(super) trait Text {
    /// Appends raw text.
    fn raw(&mut self, text: &str);
    /// Appends a number in decimal.
    fn number(&mut self, value: u64);
    /// Appends a signed number in decimal.
    fn signed(&mut self, value: i64);
    /// Appends a string in quotes, with JSON's escapes.
    fn quoted(&mut self, text: &str);
    /// Appends nanoseconds as microseconds, with as many decimals as necessary.
    fn micros(&mut self, ns: u64);
}

impl Text for Vec<u8> {
    fn raw(&mut self, text: &str) {
        self.extend_from_slice(text.as_bytes());
    }

    fn number(&mut self, value: u64) {
        self.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
    }

    fn signed(&mut self, value: i64) {
        if value < 0 {
            self.push(b'-');
        }
        self.number(value.unsigned_abs());
    }

    fn quoted(&mut self, text: &str) {
        // Writes to a `Vec` cannot fail.
        let _ = serde_json::to_writer(self, text);
    }

    fn micros(&mut self, ns: u64) {
        self.number(ns / 1_000);
        let mut rest = ns % 1_000;
        if rest > 0 {
            self.push(b'.');
            let mut unit = 100;
            while rest > 0 {
                self.push(b'0' + (rest / unit) as u8);
                rest %= unit;
                unit /= 10;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_back_as_they_were() {
        let mut text = Vec::new();
        for ns in [0, 7, 70, 700, 1_000, 1_200, 12_345_678] {
            text.micros(ns);
            text.raw(" ");
        }
        text.number(u64::MAX);
        text.raw(" ");
        text.signed(i64::MIN);
        text.quoted("\"\n");
        let expected =
            "0 0.007 0.07 0.7 1 1.2 12345.678 18446744073709551615 -9223372036854775808\"\\\"\\n\"";
        assert_eq!(String::from_utf8(text).unwrap(), expected);
    }
}
