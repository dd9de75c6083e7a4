//! The encoding of filters: a version byte, then the tree in prefix order. docs/format.md describes it.

use super::{Comparison, Filter, FilterError, Operand, Operands, levels_below};
use crate::record::encode_ref;
use crate::{FieldNumber, Result, ValueRef, limits};

pub(super) const VERSION: u8 = 1;

/// The first byte of each node. Codes never change; a new kind of node gets a new one.
mod code {
    pub(super) const AND: u8 = 0x01;
    pub(super) const OR: u8 = 0x02;
    pub(super) const NOT: u8 = 0x03;
    /// Plus the code of the comparison.
    pub(super) const COMPARE: u8 = 0x10;
    pub(super) const COMPARE_LAST: u8 = 0x15;
    pub(super) const IS_NULL: u8 = 0x20;
    pub(super) const STARTS_WITH: u8 = 0x21;
    pub(super) const CONTAINS_TEXT: u8 = 0x22;
    pub(super) const ONE_OF: u8 = 0x23;
    pub(super) const CONTAINS: u8 = 0x24;
}

impl Filter {
    /// The encoding of the filter. Equal filters have equal encodings.
    ///
    /// # Errors
    /// [`TooLarge`](crate::ErrorKind::TooLarge) past [`limits::FILTER`], [`limits::FILTER_NODES`] or
    /// [`limits::FILTER_NESTING`].
    pub fn encode(&self) -> Result<Vec<u8>> {
        let mut writer = Writer { out: vec![VERSION], nodes: limits::FILTER_NODES };
        writer.filter(self, limits::FILTER_NESTING)?;
        match writer.out.len() {
            0..=limits::FILTER => Ok(writer.out),
            size => Err(FilterError::Size(size).into()),
        }
    }

    /// Decodes and validates a filter from any source.
    ///
    /// # Errors
    /// - [`Invalid`](crate::ErrorKind::Invalid) if [`Filter::encode`] does not write these bytes,
    /// - [`TooLarge`](crate::ErrorKind::TooLarge) past [`limits::FILTER`], [`limits::FILTER_NODES`] or
    ///   [`limits::FILTER_NESTING`],
    /// - [`Unsupported`](crate::ErrorKind::Unsupported) if the filter is of a newer version or has a kind of node that
    ///   this program does not know.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader { rest: bytes, nodes: limits::FILTER_NODES };
        if bytes.len() > limits::FILTER {
            return Err(FilterError::Size(bytes.len()).into());
        }
        match reader.byte()? {
            VERSION => {}
            version => return Err(FilterError::Version(version).into()),
        }
        let filter = reader.filter(limits::FILTER_NESTING)?;
        if reader.rest.is_empty() { Ok(filter) } else { Err(FilterError::LeftOver.into()) }
    }
}

struct Writer {
    out: Vec<u8>,
    /// The number of nodes that may still be written.
    nodes: usize,
}

impl Writer {
    fn filter(&mut self, filter: &Filter, levels: usize) -> Result<(), FilterError> {
        self.nodes = self.nodes.checked_sub(1).ok_or(FilterError::Nodes)?;
        match filter {
            Filter::And(parts) => self.parts(code::AND, parts, levels),
            Filter::Or(parts) => self.parts(code::OR, parts, levels),
            Filter::Not(part) => {
                self.out.push(code::NOT);
                self.filter(part, levels_below(levels)?)
            }
            Filter::IsNull(field) => {
                self.test(code::IS_NULL, *field);
                Ok(())
            }
            Filter::Compare(field, comparison, operand) => {
                self.test(code::COMPARE + *comparison as u8, *field);
                self.operand(operand)
            }
            Filter::StartsWith(field, text) => {
                self.test(code::STARTS_WITH, *field);
                self.bytes(text.as_bytes())
            }
            Filter::ContainsText(field, text) => {
                self.test(code::CONTAINS_TEXT, *field);
                self.bytes(text.as_bytes())
            }
            Filter::OneOf(field, operands) => {
                self.test(code::ONE_OF, *field);
                self.len(operands.0.len())?;
                operands.0.iter().try_for_each(|operand| self.operand(operand))
            }
            Filter::Contains(field, operand) => {
                self.test(code::CONTAINS, *field);
                self.operand(operand)
            }
        }
    }

    fn parts(&mut self, code: u8, parts: &[Filter], levels: usize) -> Result<(), FilterError> {
        let below = levels_below(levels)?;
        self.out.push(code);
        self.len(parts.len())?;
        parts.iter().try_for_each(|part| self.filter(part, below))
    }

    fn test(&mut self, code: u8, field: FieldNumber) {
        self.out.push(code);
        self.number(field.0);
    }

    fn operand(&mut self, operand: &Operand) -> Result<(), FilterError> {
        let mut bytes = Vec::new();
        encode_ref(operand.0.as_scalar().ok_or(FilterError::Operand)?, &mut bytes);
        self.bytes(&bytes)
    }

    fn bytes(&mut self, bytes: &[u8]) -> Result<(), FilterError> {
        self.len(bytes.len())?;
        self.out.extend_from_slice(bytes);
        Ok(())
    }

    fn len(&mut self, len: usize) -> Result<(), FilterError> {
        self.number(u32::try_from(len).map_err(|_| FilterError::Size(len))?);
        Ok(())
    }

    /// LEB128: seven bits a byte, least significant first; the top bit is set in all but the last byte.
    fn number(&mut self, mut number: u32) {
        while number >= 0x80 {
            self.out.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.out.push(number as u8);
    }
}

struct Reader<'a> {
    rest: &'a [u8],
    /// The number of nodes that may still be read.
    nodes: usize,
}

impl<'a> Reader<'a> {
    fn filter(&mut self, levels: usize) -> Result<Filter, FilterError> {
        self.nodes = self.nodes.checked_sub(1).ok_or(FilterError::Nodes)?;
        let code = self.byte()?;
        Ok(match code {
            code::AND => Filter::And(self.parts(levels)?),
            code::OR => Filter::Or(self.parts(levels)?),
            code::NOT => Filter::Not(Box::new(self.filter(levels_below(levels)?)?)),
            code::IS_NULL => Filter::IsNull(self.field()?),
            code::COMPARE..=code::COMPARE_LAST => {
                let comparison = Comparison::ALL[usize::from(code - code::COMPARE)];
                Filter::Compare(self.field()?, comparison, self.operand()?)
            }
            code::STARTS_WITH => Filter::StartsWith(self.field()?, self.text()?),
            code::CONTAINS_TEXT => Filter::ContainsText(self.field()?, self.text()?),
            code::ONE_OF => Filter::OneOf(self.field()?, self.operands()?),
            code::CONTAINS => Filter::Contains(self.field()?, self.operand()?),
            unknown => return Err(FilterError::Code(unknown)),
        })
    }

    fn parts(&mut self, levels: usize) -> Result<Vec<Filter>, FilterError> {
        let below = levels_below(levels)?;
        // The count is not trusted: memory is allocated as the parts are read.
        (0..self.number()?).map(|_| self.filter(below)).collect()
    }

    fn operands(&mut self) -> Result<Operands, FilterError> {
        let operands = (0..self.number()?).map(|_| self.operand()).collect::<Result<Vec<_>, FilterError>>()?;
        if operands.is_sorted_by(|a, b| a < b) { Ok(Operands(operands)) } else { Err(FilterError::Order) }
    }

    fn operand(&mut self) -> Result<Operand, FilterError> {
        let scalar = ValueRef::parse(self.bytes()?).map_err(FilterError::Value)?;
        let value = scalar.decode(0).map_err(|_| FilterError::Operand)?;
        Operand::new(value).map_err(|_| FilterError::Operand)
    }

    fn text(&mut self) -> Result<String, FilterError> {
        Ok(std::str::from_utf8(self.bytes()?).map_err(|_| FilterError::Utf8)?.to_owned())
    }

    fn field(&mut self) -> Result<FieldNumber, FilterError> {
        self.number().map(FieldNumber)
    }

    fn bytes(&mut self) -> Result<&'a [u8], FilterError> {
        let len = self.number()? as usize;
        let (bytes, rest) = self.rest.split_at_checked(len).ok_or(FilterError::CutOff)?;
        self.rest = rest;
        Ok(bytes)
    }

    fn number(&mut self) -> Result<u32, FilterError> {
        let mut number = 0u64;
        for shift in (0..35).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                let shortest = byte != 0 || shift == 0;
                return if shortest {
                    u32::try_from(number).map_err(|_| FilterError::Number)
                } else {
                    Err(FilterError::Number)
                };
            }
        }
        Err(FilterError::Number)
    }

    fn byte(&mut self) -> Result<u8, FilterError> {
        let (&byte, rest) = self.rest.split_first().ok_or(FilterError::CutOff)?;
        self.rest = rest;
        Ok(byte)
    }
}
