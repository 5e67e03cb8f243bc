//! Parameter of a copy kernel: sources, targets, numbers of elements, and the conversion of each
//! element. It is passed to the launch by value, so no memory has to live until the kernel runs.
//! `collective/nccl/kernels/copy.cu` reads it.

/// Element types of kernels and of NCCL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Number {
    U8,
    I8,
    I16,
    I32,
    I64,
    F16,
    Bf16,
    F32,
    F64,
}

impl Number {
    /// Size of one element.
    pub(crate) const fn bytes(self) -> usize {
        match self {
            Self::U8 | Self::I8 => 1,
            Self::I16 | Self::F16 | Self::Bf16 => 2,
            Self::I32 | Self::F32 => 4,
            Self::I64 | Self::F64 => 8,
        }
    }

    /// Name in the names of kernels.
    const fn name(self) -> &'static str {
        match self {
            Self::U8 => "u8",
            Self::I8 => "i8",
            Self::I16 => "i16",
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::F32 => "f32",
            Self::F64 => "f64",
        }
    }
}

/// Copy kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kernel {
    /// Copies bytes.
    Copy,
    /// Fills with a pattern of eight bytes, which an entry has instead of a source address.
    Fill,
    /// Converts, multiplies by the factor, divides.
    Convert {
        /// Type of elements read.
        from: Number,
        /// Type of elements written.
        to: Number,
    },
}

impl Kernel {
    /// Name of the kernel in the module.
    #[cfg_attr(not(feature = "nccl"), expect(dead_code, reason = "nothing is loaded"))]
    pub(crate) fn name(self) -> String {
        match self {
            Self::Copy => "ronde_copy".to_owned(),
            Self::Fill => "ronde_fill".to_owned(),
            Self::Convert { from, to } => format!("ronde_{}_{}", from.name(), to.name()),
        }
    }

    /// Elements that one block processes.
    fn chunk(self) -> u32 {
        let widest = match self {
            Self::Copy | Self::Fill => 1,
            Self::Convert { from, to } => from.bytes().max(to.bytes()),
        };
        CHUNK_BYTES / widest as u32
    }
}

/// Bytes that a block processes, on the wider side.
const CHUNK_BYTES: u32 = 32_768;

/// Entries of one table: as many as fit, with the head, into 4,096 bytes, the largest parameter of
/// a kernel on every device.
pub(crate) const ENTRIES: usize = 170;

/// Most elements of one entry: a multiple of every chunk, so that the parts of a split tensor stay
/// aligned.
const ELEMENTS_MAX: usize = 1 << 31;

/// Copy of one range of memory to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Address of the first element read; for [`Kernel::Fill`] the pattern.
    pub(crate) from: u64,
    /// Address of the first element written.
    pub(crate) to: u64,
    /// Number of elements.
    pub(crate) elements: usize,
}

/// Table of entries, laid out as the kernels read it.
#[derive(Clone)]
#[repr(C)]
pub(crate) struct Table {
    factor: f64,
    divisor: u32,
    count: u32,
    from: [u64; ENTRIES],
    to: [u64; ENTRIES],
    elements: [u32; ENTRIES],
    first_block: [u32; ENTRIES],
}

const _: () = assert!(size_of::<Table>() == 4096);

impl Table {
    fn new(factor: f64, divisor: u32) -> Self {
        Self {
            factor,
            divisor,
            count: 0,
            from: [0; ENTRIES],
            to: [0; ENTRIES],
            elements: [0; ENTRIES],
            first_block: [0; ENTRIES],
        }
    }

    /// Returns the tables with which `kernel` executes `entries`: one, unless there are very many.
    pub(crate) fn of(
        kernel: Kernel,
        factor: f64,
        divisor: u32,
        entries: &[Entry],
    ) -> Vec<Box<Self>> {
        let wide = |number: usize| number as u64;
        let mut tables: Vec<Box<Self>> = Vec::new();
        let mut blocks = 0u32;
        for entry in entries {
            let (mut done, (from_bytes, to_bytes)) = (0, kernel.steps());
            while done < entry.elements {
                let elements = (entry.elements - done).min(ELEMENTS_MAX);
                let of_entry = (elements as u32).div_ceil(kernel.chunk());
                let has_room = |table: &Self| {
                    let fits = |blocks: u32| blocks <= i32::MAX as u32;
                    (table.count as usize) < ENTRIES
                        && blocks.checked_add(of_entry).is_some_and(fits)
                };
                if !tables.last().is_some_and(|table| has_room(table)) {
                    tables.push(Box::new(Self::new(factor, divisor)));
                    blocks = 0;
                }
                let table = tables.last_mut().expect("just pushed");
                let at = table.count as usize;
                table.from[at] = entry.from + wide(done) * from_bytes;
                table.to[at] = entry.to + wide(done) * to_bytes;
                table.elements[at] = elements as u32;
                table.first_block[at] = blocks;
                table.count += 1;
                blocks += of_entry;
                done += elements;
            }
        }
        tables
    }

    /// Returns the entries.
    #[cfg(test)]
    pub(crate) fn entries(&self) -> impl Iterator<Item = Entry> + '_ {
        (0..self.count as usize).map(|at| Entry {
            from: self.from[at],
            to: self.to[at],
            elements: self.elements[at] as usize,
        })
    }

    /// Number of blocks that `kernel` needs for the table.
    #[cfg_attr(
        not(any(test, feature = "nccl")),
        expect(dead_code, reason = "nothing is launched")
    )]
    pub(crate) fn blocks(&self, kernel: Kernel) -> u32 {
        let last = self.count as usize - 1;
        self.first_block[last] + self.elements[last].div_ceil(kernel.chunk())
    }

    /// Factor and divisor.
    #[cfg(test)]
    pub(crate) fn scaling(&self) -> (f64, u32) {
        (self.factor, self.divisor)
    }
}

impl Kernel {
    /// Bytes from one element to the next: of the source, and of the target. A fill reads the same
    /// pattern for all.
    const fn steps(self) -> (u64, u64) {
        match self {
            Self::Copy => (1, 1),
            Self::Fill => (0, 1),
            Self::Convert { from, to } => (from.bytes() as u64, to.bytes() as u64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_get_the_blocks_that_their_chunks_need() {
        let kernel = Kernel::Convert {
            from: Number::F32,
            to: Number::F16,
        };
        let entry = |elements| Entry {
            from: 1024,
            to: 4096,
            elements,
        };
        let [table] = &Table::of(
            kernel,
            1.0,
            1,
            &[entry(1), entry(8192), entry(8193), entry(0), entry(5)],
        )[..] else {
            panic!("one table");
        };
        assert_eq!(&table.first_block[..4], [0, 1, 2, 4]);
        assert_eq!((table.count, table.blocks(kernel)), (4, 5));
    }

    #[test]
    fn many_entries_and_large_ones_are_cut() {
        let many: Vec<Entry> = (0..ENTRIES as u64 + 1)
            .map(|at| Entry {
                from: at,
                to: at,
                elements: 1,
            })
            .collect();
        let tables = Table::of(Kernel::Copy, 1.0, 1, &many);
        assert_eq!(
            tables.iter().map(|table| table.count).collect::<Vec<_>>(),
            [170, 1]
        );
        assert_eq!(tables[1].first_block[0], 0);
        let kernel = Kernel::Convert {
            from: Number::F16,
            to: Number::F32,
        };
        let large = Entry {
            from: 0,
            to: 1 << 40,
            elements: (1 << 32) + 3,
        };
        let cut: Vec<Entry> = Table::of(kernel, 1.0, 1, &[large])[0].entries().collect();
        let elements: Vec<usize> = cut.iter().map(|entry| entry.elements).collect();
        assert_eq!(elements, [1 << 31, 1 << 31, 3]);
        assert_eq!((cut[2].from, cut[2].to), (2 << 32, (1 << 40) + (4 << 32)));
    }
}
