//! Building blocks of schemas: types of values, objects and unions with a name, and the named schemas that they refer to.

use serde_json::{Value, json};
use utoipa::ToSchema;
use utoipa::openapi::extensions::Extensions;
use utoipa::openapi::schema::{
    AdditionalProperties, AnyOfBuilder, ArrayBuilder, Discriminator, KnownFormat, ObjectBuilder, OneOfBuilder, Schema,
    SchemaFormat, SchemaType, Type,
};
use utoipa::openapi::{Ref, RefOr};

/// A schema under its name.
pub(super) type Named = (String, RefOr<Schema>);

/// The schema of a value, and the named ones that it refers to.
pub(super) struct Shape {
    pub(super) schema: RefOr<Schema>,
    pub(super) named: Vec<Named>,
}

impl Shape {
    fn plain(object: ObjectBuilder) -> Self {
        Shape { schema: object.into(), named: Vec::new() }
    }

    /// The same, or null.
    pub(super) fn or_null(self) -> Self {
        let null = || ObjectBuilder::new().schema_type(Type::Null);
        let schema = match self.schema {
            RefOr::T(Schema::Object(mut object)) if object.enum_values.is_none() && object.extensions.is_none() => {
                object.schema_type = with_null(object.schema_type);
                RefOr::T(Schema::Object(object))
            }
            RefOr::T(Schema::Array(mut array)) => {
                array.schema_type = with_null(array.schema_type);
                RefOr::T(Schema::Array(array))
            }
            schema => AnyOfBuilder::new().item(schema).item(null()).into(),
        };
        Shape { schema, ..self }
    }

    /// The same with words about it.
    pub(super) fn about(self, words: &str) -> Self {
        let words = Some(on_lines(words)).filter(|words| !words.is_empty());
        let schema = match self.schema {
            RefOr::Ref(mut reference) => {
                reference.description = words.unwrap_or_default();
                RefOr::Ref(reference)
            }
            RefOr::T(schema) => RefOr::T(with_words(schema, words)),
        };
        Shape { schema, ..self }
    }
}

fn with_words(schema: Schema, words: Option<String>) -> Schema {
    match schema {
        Schema::Object(object) => ObjectBuilder::from(object).description(words).into(),
        Schema::Array(array) => ArrayBuilder::from(array).description(words).into(),
        Schema::OneOf(one_of) => OneOfBuilder::from(one_of).description(words).into(),
        Schema::AnyOf(any_of) => AnyOfBuilder::from(any_of).description(words).into(),
        other => other,
    }
}

fn with_null(types: SchemaType) -> SchemaType {
    match types {
        SchemaType::Type(one) => SchemaType::Array(vec![one, Type::Null]),
        SchemaType::Array(mut several) => {
            several.push(Type::Null);
            SchemaType::Array(several)
        }
        SchemaType::AnyValue => SchemaType::AnyValue,
    }
}

/// Doc comments without the blank that each line begins with.
fn on_lines(words: &str) -> String {
    words.lines().map(str::trim).collect::<Vec<_>>().join("\n").trim().to_owned()
}

/// A value of one of these types.
pub(super) fn of_types(types: &[Type]) -> Shape {
    let types = match types {
        [one] => SchemaType::Type(one.clone()),
        several => SchemaType::Array(several.to_vec()),
    };
    Shape::plain(ObjectBuilder::new().schema_type(types))
}

pub(super) fn text() -> Shape {
    of_types(&[Type::String])
}

pub(super) fn flag() -> Shape {
    of_types(&[Type::Boolean])
}

pub(super) fn number() -> Shape {
    of_types(&[Type::Number])
}

/// A whole number, 0 or more.
pub(super) fn count() -> Shape {
    Shape::plain(ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(0)))
}

/// Any JSON.
pub(super) fn any() -> Shape {
    Shape::plain(ObjectBuilder::new().schema_type(SchemaType::AnyValue))
}

/// An object with any keys.
pub(super) fn map() -> Shape {
    let open = AdditionalProperties::FreeForm(true);
    Shape::plain(ObjectBuilder::new().schema_type(Type::Object).additional_properties(Some(open)))
}

/// A text of this form.
pub(super) fn matching(pattern: &str) -> Shape {
    Shape::plain(ObjectBuilder::new().schema_type(Type::String).pattern(Some(pattern)))
}

/// Exactly this word.
pub(super) fn word(word: &str) -> Shape {
    Shape::plain(ObjectBuilder::new().schema_type(Type::String).extensions(Some(keywords(&[("const", json!(word))]))))
}

/// One of these words.
pub(super) fn words<'a>(words: impl IntoIterator<Item = &'a str>) -> Shape {
    Shape::plain(ObjectBuilder::new().schema_type(Type::String).enum_values(Some(words)))
}

/// A text that is JSON of this shape.
pub(super) fn json_text(content: Shape) -> Shape {
    text_of("application/json", content, None)
}

/// A body of JSON lines of this shape. Clients take and give it as it is sent.
pub(super) fn lines_of(line: Shape) -> Shape {
    text_of("application/x-ndjson", line, Some(SchemaFormat::KnownFormat(KnownFormat::Binary)))
}

/// A body of server-sent events. The shape is that of one message, field by field.
pub(super) fn stream_of(message: Shape) -> Shape {
    text_of("text/event-stream", message, None)
}

fn text_of(media_type: &str, content: Shape, format: Option<SchemaFormat>) -> Shape {
    let content_schema = serde_json::to_value(&content.schema).expect("a schema is JSON");
    let keywords = keywords(&[("contentMediaType", json!(media_type)), ("contentSchema", content_schema)]);
    let text = ObjectBuilder::new().schema_type(Type::String).format(format).extensions(Some(keywords));
    Shape { schema: text.into(), named: content.named }
}

/// Keywords of JSON Schema that the builder has no methods for.
fn keywords(keywords: &[(&str, Value)]) -> Extensions {
    keywords.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect()
}

pub(super) fn list(item: Shape) -> Shape {
    Shape { schema: ArrayBuilder::new().items(item.schema).into(), named: item.named }
}

/// A value of a schema that has a name.
pub(super) fn one<T: ToSchema>() -> Shape {
    let mut named = vec![(T::name().into_owned(), T::schema())];
    T::schemas(&mut named);
    Shape { schema: Ref::from_schema_name(T::name()).into(), named }
}

/// A value of one of these shapes, or of several.
pub(super) fn either(shapes: impl IntoIterator<Item = Shape>) -> Shape {
    let (mut any_of, mut named) = (AnyOfBuilder::new(), Vec::new());
    for shape in shapes {
        any_of = any_of.item(shape.schema);
        named.extend(shape.named);
    }
    Shape { schema: any_of.into(), named }
}

/// A value of exactly one of these named shapes: the one whose word stands under `key`.
pub(super) fn by_word(key: &str, shapes: Vec<(&str, Shape)>) -> Shape {
    let (mut one_of, mut mapping, mut named) = (OneOfBuilder::new(), Vec::new(), Vec::new());
    for (word, shape) in shapes {
        if let RefOr::Ref(reference) = &shape.schema {
            mapping.push((word.to_owned(), reference.ref_location.clone()));
        }
        one_of = one_of.item(shape.schema);
        named.extend(shape.named);
    }
    let discriminator = Discriminator::with_mapping(key, mapping);
    Shape { schema: one_of.discriminator(Some(discriminator)).into(), named }
}

/// An object, key by key.
pub(super) struct Keys {
    object: ObjectBuilder,
    named: Vec<Named>,
}

impl Keys {
    pub(super) fn new() -> Self {
        Keys { object: ObjectBuilder::new().schema_type(Type::Object), named: Vec::new() }
    }

    /// A key that is always there.
    pub(super) fn must(self, key: &str, words: &str, shape: Shape) -> Self {
        let keys = self.may(key, words, shape);
        Keys { object: keys.object.required(key), ..keys }
    }

    /// A key that may be missing.
    pub(super) fn may(mut self, key: &str, words: &str, shape: Shape) -> Self {
        let shape = shape.about(words);
        self.named.extend(shape.named);
        Keys { object: self.object.property(key, shape.schema), named: self.named }
    }

    /// With any other keys.
    pub(super) fn open(self) -> Shape {
        let open = AdditionalProperties::FreeForm(true);
        Shape { schema: self.object.additional_properties(Some(open)).into(), named: self.named }
    }

    /// As far as this version knows. A reader ignores keys that it does not know.
    pub(super) fn known(self) -> Shape {
        Shape { schema: self.object.into(), named: self.named }
    }

    /// With no other keys.
    pub(super) fn closed(self) -> Shape {
        let closed = AdditionalProperties::FreeForm(false);
        Shape { schema: self.object.additional_properties(Some(closed)).into(), named: self.named }
    }
}

/// Schemas with names: `/// words  Name => shape;`
macro_rules! named {
    ($($(#[doc = $words:literal])+ $Name:ident => $shape:expr;)+) => {$(
        $(#[doc = $words])+
        #[derive(Debug)]
        pub(in crate::http) struct $Name;

        impl $Name {
            fn shape() -> $crate::http::describe::shape::Shape {
                $shape.about(concat!($($words, "\n"),+))
            }
        }

        impl utoipa::PartialSchema for $Name {
            fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
                Self::shape().schema
            }
        }

        impl utoipa::ToSchema for $Name {
            fn name() -> std::borrow::Cow<'static, str> {
                std::borrow::Cow::Borrowed(stringify!($Name))
            }

            fn schemas(named: &mut Vec<$crate::http::describe::shape::Named>) {
                named.extend(Self::shape().named);
            }
        }
    )+};
}

/// Objects with names: `/// words  open Name { /// words  must "key": shape, /// words  may "key": shape, }`
macro_rules! objects {
    ($($(#[doc = $words:literal])+ $openness:ident $Name:ident {
        $($(#[doc = $about:literal])* $presence:ident $key:literal: $shape:expr,)*
    })+) => {
        named! {$(
            $(#[doc = $words])+
            $Name => $crate::http::describe::shape::Keys::new()
                $(.$presence($key, concat!($($about, "\n"),*), $shape))*.$openness();
        )+}
    };
}
