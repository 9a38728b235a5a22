//! One place for a type and its form on the wire: fields in their order, variants by their byte.

/// A struct whose fields follow one another, each `name: type as coding`.
macro_rules! record {
    (
        $(#[$m:meta])*
        pub struct $name:ident {
            $($(#[$fm:meta])* pub $f:ident: $t:ty as $c:ty,)*
        }
    ) => {
        $(#[$m])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name {
            $($(#[$fm])* pub $f: $t,)*
        }

        impl $crate::wire::Wire for $name {
            fn put(&self, out: &mut Vec<u8>) -> Result<(), $crate::EncodeError> {
                $(<$c as $crate::wire::Coding<$t>>::put(
                    concat!(stringify!($name), ".", stringify!($f)), &self.$f, out)?;)*
                Ok(())
            }

            fn get(from: &mut $crate::wire::Reader<'_>) -> Result<Self, $crate::DecodeError> {
                Ok(Self {
                    $($f: <$c as $crate::wire::Coding<$t>>::get(
                        concat!(stringify!($name), ".", stringify!($f)), from)?,)*
                })
            }
        }
    };
}

/// An enum: a byte for the variant, then its fields in their order. An unknown byte is an error,
/// but where `else Variant` stands, it reads as that one.
macro_rules! choice {
    (
        $(#[$m:meta])*
        pub enum $name:ident $(else $other:ident)? {
            $($(#[$vm:meta])* $n:literal = $v:ident
                $({ $($(#[$fm:meta])* $f:ident: $t:ty as $c:ty,)* })?,)*
        }
    ) => {
        $(#[$m])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum $name {
            $($(#[$vm])* $v $({ $($(#[$fm])* $f: $t,)* })?,)*
        }

        impl $crate::wire::Wire for $name {
            fn put(&self, out: &mut Vec<u8>) -> Result<(), $crate::EncodeError> {
                match self {
                    $(Self::$v $({ $($f,)* })? => {
                        out.push($n);
                        $($(<$c as $crate::wire::Coding<$t>>::put(
                            concat!(stringify!($name), "::", stringify!($v), ".", stringify!($f)),
                            $f, out)?;)*)?
                    })*
                }
                Ok(())
            }

            fn get(from: &mut $crate::wire::Reader<'_>) -> Result<Self, $crate::DecodeError> {
                match from.byte(stringify!($name))? {
                    $($n => Ok(Self::$v $({ $($f: <$c as $crate::wire::Coding<$t>>::get(
                        concat!(stringify!($name), "::", stringify!($v), ".", stringify!($f)),
                        from)?,)* })?),)*
                    $(#[allow(unreachable_patterns)] _ => Ok(Self::$other),)?
                    #[allow(unreachable_patterns)]
                    value => Err($crate::wire::unknown(stringify!($name), value)),
                }
            }
        }
    };
}

pub(crate) use {choice, record};
