//! What serde calls, turned into text.

use std::fmt;
use std::io;

use serde::ser::{self, Serialize, Serializer};

use super::writer::Writer;

/// How `serde_json` dresses a number whose text is kept.
const NUMBER: &str = "$serde_json::private::Number";

/// Why something can't be written as JSON.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Error(String);

impl ser::Error for Error {
    fn custom<T: fmt::Display>(why: T) -> Self {
        Self(why.to_string())
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        Self::new(io::ErrorKind::InvalidData, error)
    }
}

/// An array or an object that is being written.
pub(super) struct Inside<'w> {
    writer: &'w mut Writer,
    empty: bool,
    close: u8,
    /// It stands in an object of its own, as a variant that holds something does.
    extra: bool,
}

impl Inside<'_> {
    fn next(&mut self) {
        if !std::mem::replace(&mut self.empty, false) {
            self.writer.out.push(b',');
        }
        if self.writer.indents {
            self.writer.new_line();
        }
    }

    fn element(&mut self, value: &(impl Serialize + ?Sized)) -> Result<(), Error> {
        self.next();
        value.serialize(&mut *self.writer)
    }

    fn colon(&mut self) {
        let indents = self.writer.indents;
        self.writer.raw(if indents { b": " } else { b":" });
    }

    fn entry(&mut self, key: &str, value: &(impl Serialize + ?Sized)) -> Result<(), Error> {
        self.next();
        self.writer.text(key);
        self.colon();
        value.serialize(&mut *self.writer)
    }

    fn shut(self) {
        let Self {
            writer,
            empty,
            close,
            extra,
        } = self;
        writer.depth -= 1;
        if writer.indents && !empty {
            writer.new_line();
        }
        writer.out.push(close);
        if extra {
            writer.depth -= 1;
            if writer.indents {
                writer.new_line();
            }
            writer.out.push(b'}');
        }
    }
}

macro_rules! widened {
    ($($name:ident: $kind:ty as $wide:ident),*) => {$(
        fn $name(self, value: $kind) -> Result<(), Error> {
            self.$wide(value.into())
        }
    )*};
}

impl<'w> Serializer for &'w mut Writer {
    type Ok = ();
    type Error = Error;
    type SerializeSeq = Inside<'w>;
    type SerializeTuple = Inside<'w>;
    type SerializeTupleStruct = Inside<'w>;
    type SerializeTupleVariant = Inside<'w>;
    type SerializeMap = Inside<'w>;
    type SerializeStruct = Struct<'w>;
    type SerializeStructVariant = Inside<'w>;

    widened!(
        serialize_i8: i8 as serialize_i64,
        serialize_i16: i16 as serialize_i64,
        serialize_i32: i32 as serialize_i64,
        serialize_u8: u8 as serialize_u64,
        serialize_u16: u16 as serialize_u64,
        serialize_u32: u32 as serialize_u64
    );

    fn serialize_i64(self, value: i64) -> Result<(), Error> {
        if value < 0 {
            self.out.push(b'-');
        }
        self.serialize_u64(value.unsigned_abs())
    }

    fn serialize_u64(self, value: u64) -> Result<(), Error> {
        self.unsigned(value);
        Ok(())
    }

    fn serialize_bool(self, value: bool) -> Result<(), Error> {
        self.raw(if value { b"true" } else { b"false" });
        Ok(())
    }

    fn serialize_f32(self, value: f32) -> Result<(), Error> {
        self.float(serde_json::to_string(&value))
    }

    fn serialize_f64(self, value: f64) -> Result<(), Error> {
        self.float(serde_json::to_string(&value))
    }

    fn serialize_char(self, value: char) -> Result<(), Error> {
        self.text(value.encode_utf8(&mut [0; 4]));
        Ok(())
    }

    fn serialize_str(self, text: &str) -> Result<(), Error> {
        self.text(text);
        Ok(())
    }

    fn serialize_bytes(self, bytes: &[u8]) -> Result<(), Error> {
        self.collect_seq(bytes)
    }

    fn serialize_none(self) -> Result<(), Error> {
        self.serialize_unit()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Error> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<(), Error> {
        self.raw(b"null");
        Ok(())
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<(), Error> {
        self.serialize_unit()
    }

    fn serialize_unit_variant(self, _: &str, _: u32, variant: &str) -> Result<(), Error> {
        self.serialize_str(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<(), Error> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<(), Error> {
        let mut holder = self.open(b'{');
        holder.entry(variant, value)?;
        holder.shut();
        Ok(())
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Inside<'w>, Error> {
        Ok(self.open(b'['))
    }

    fn serialize_tuple(self, _: usize) -> Result<Inside<'w>, Error> {
        Ok(self.open(b'['))
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Inside<'w>, Error> {
        Ok(self.open(b'['))
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Inside<'w>, Error> {
        Ok(self.variant(variant, b'['))
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Inside<'w>, Error> {
        Ok(self.open(b'{'))
    }

    fn serialize_struct(self, name: &'static str, _: usize) -> Result<Struct<'w>, Error> {
        Ok(if name == NUMBER {
            Struct::Number(self)
        } else {
            Struct::Object(self.open(b'{'))
        })
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Inside<'w>, Error> {
        Ok(self.variant(variant, b'{'))
    }
}

impl Writer {
    fn open(&mut self, bracket: u8) -> Inside<'_> {
        self.out.push(bracket);
        self.depth += 1;
        Inside {
            writer: self,
            empty: true,
            close: bracket + 2,
            extra: false,
        }
    }

    /// How floats are shown is an art of its own.
    fn float(&mut self, text: serde_json::Result<String>) -> Result<(), Error> {
        self.raw(text.map_err(ser::Error::custom)?.as_bytes());
        Ok(())
    }

    /// Opens what a variant holds, in an object with the variant's name.
    fn variant(&mut self, name: &str, bracket: u8) -> Inside<'_> {
        let mut holder = self.open(b'{');
        holder.next();
        holder.writer.text(name);
        holder.colon();
        let mut inside = self.open(bracket);
        inside.extra = true;
        inside
    }
}

/// A structure, or a number.
pub(super) enum Struct<'w> {
    Object(Inside<'w>),
    Number(&'w mut Writer),
}

impl ser::SerializeStruct for Struct<'_> {
    type Ok = ();
    type Error = Error;

    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        key: &'static str,
        value: &T,
    ) -> Result<(), Error> {
        match self {
            Self::Object(inside) => inside.entry(key, value),
            Self::Number(writer) => {
                // Its text, without the quotes.
                let start = writer.out.len();
                value.serialize(&mut **writer)?;
                writer.out.pop();
                writer.out.remove(start);
                Ok(())
            }
        }
    }

    fn end(self) -> Result<(), Error> {
        if let Self::Object(inside) = self {
            inside.shut();
        }
        Ok(())
    }
}

macro_rules! elements {
    ($($of:ident: $method:ident),*) => {$(
        impl ser::$of for Inside<'_> {
            type Ok = ();
            type Error = Error;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
                self.element(value)
            }

            fn end(self) -> Result<(), Error> {
                self.shut();
                Ok(())
            }
        }
    )*};
}

elements!(
    SerializeSeq: serialize_element,
    SerializeTuple: serialize_element,
    SerializeTupleStruct: serialize_field,
    SerializeTupleVariant: serialize_field
);

impl ser::SerializeStructVariant for Inside<'_> {
    type Ok = ();
    type Error = Error;

    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        key: &'static str,
        value: &T,
    ) -> Result<(), Error> {
        self.entry(key, value)
    }

    fn end(self) -> Result<(), Error> {
        self.shut();
        Ok(())
    }
}

impl ser::SerializeMap for Inside<'_> {
    type Ok = ();
    type Error = Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Error> {
        self.next();
        let start = self.writer.out.len();
        key.serialize(&mut *self.writer)?;
        match self.writer.out.get(start) {
            Some(b'"') => {}
            Some(b'-' | b'0'..=b'9' | b't' | b'f') => {
                self.writer.out.insert(start, b'"');
                self.writer.out.push(b'"');
            }
            _ => return Err(ser::Error::custom("key must be a string")),
        }
        self.colon();
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        value.serialize(&mut *self.writer)
    }

    fn end(self) -> Result<(), Error> {
        self.shut();
        Ok(())
    }
}
