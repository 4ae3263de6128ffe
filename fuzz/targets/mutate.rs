//! Changes that leave a scenario one more often than changed bytes do: entries come, go and trade
//! places, and a word or a number is replaced by another, mostly one of the same key.

use serde_json::Value;

/// Changes the JSON in the first `size` bytes; tells the new size, or nothing if it is no JSON or
/// would not fit.
pub(crate) fn restructure(data: &mut [u8], size: usize, room: usize, seed: u32) -> Option<usize> {
    let mut value: Value = serde_json::from_slice(&data[..size]).ok()?;
    let mut dice = Dice(seed.into());
    for _ in 0..=dice.below(2) {
        change(&mut value, &mut dice)?;
    }
    let text = serde_json::to_vec(&value).ok()?;
    let place = data.get_mut(..text.len()).filter(|place| place.len() <= room)?;
    place.copy_from_slice(&text);
    Some(text.len())
}

fn change(root: &mut Value, dice: &mut Dice) -> Option<()> {
    let mut places = Vec::new();
    collect(root, String::new(), &mut places);
    let place = dice.one(&places)?;
    let any = dice.below(4) == 0;
    let alike: Vec<_> = places.iter().filter(|it| any || key(it) == key(place)).collect();
    let other = root.pointer(dice.one(&alike)?)?.clone();
    match (root.pointer_mut(place)?, other) {
        (Value::Array(list), Value::Array(other)) => {
            let (at, to) = (dice.below(list.len() + 1), dice.below(list.len().max(1)));
            match dice.below(4) {
                0 if at < list.len() => drop(list.remove(at)),
                1 if at < list.len() => list.swap(at, to),
                2 => list.extend(other),
                _ => list.insert(at, dice.one(&other)?.clone()),
            }
        }
        (Value::Number(value), _) if any => *value = (*dice.one(&NUMBERS)?).into(),
        (Value::String(word), _) if any && word.contains('=') => {
            let digits = word.trim_end_matches(|c: char| c.is_ascii_digit()).len();
            word.replace_range(digits.., &dice.one(&NUMBERS)?.to_string());
        }
        (value, other) => *value = other,
    }
    Some(())
}

/// Numbers at which something ends.
const NUMBERS: [u64; 5] = [0, 1, 2, u64::MAX - 1, u64::MAX];

/// The places of all lists, words and numbers, as JSON pointers.
fn collect(value: &Value, at: String, places: &mut Vec<String>) {
    match value {
        Value::Array(items) => {
            let items = items.iter().enumerate();
            items.for_each(|(number, item)| collect(item, format!("{at}/{number}"), places));
            places.push(at);
        }
        Value::Object(map) => {
            map.iter().for_each(|(key, item)| collect(item, format!("{at}/{key}"), places));
        }
        Value::String(_) | Value::Number(_) => places.push(at),
        Value::Null | Value::Bool(_) => {}
    }
}

/// What a place is called, whichever item of a list it is in.
fn key(place: &str) -> Option<&str> {
    place.rsplit('/').find(|step| step.parse::<usize>().is_err())
}

/// A linear congruential generator: a seed gives the same change again.
struct Dice(u64);

impl Dice {
    fn below(&mut self, count: usize) -> usize {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.0 >> 33) as usize % count
    }

    fn one<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        (!items.is_empty()).then(|| &items[self.below(items.len())])
    }
}
