//! A bounded cache, the least recently used goes first. Knows nothing of what it holds but its weight; the loader is
//! passed in, and however many ask for the same thing, it is loaded once.

mod flight;
mod order;

use std::collections::HashMap;
use std::sync::Arc;

use crate::sync::Mutex;

use self::flight::Flight;
use self::order::Order;
use crate::model::SessionId;

/// How much a cache may hold.
#[derive(Debug, Clone, Copy)]
pub struct CacheOptions {
    /// How many sessions.
    pub sessions_max: usize,
    /// How many bytes of them.
    pub bytes_max: usize,
}

impl Default for CacheOptions {
    fn default() -> Self {
        CacheOptions { sessions_max: 1024, bytes_max: 256 * 1024 * 1024 }
    }
}

/// How much a cache holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheSize {
    /// How many sessions.
    pub sessions: usize,
    /// How many bytes of them.
    pub bytes: usize,
}

/// What the holder of a cached value tells of it.
pub trait Weighed {
    /// The bytes that it takes.
    fn bytes(&self) -> usize;

    /// Whether it has to stay for now, whatever the bounds say.
    fn must_stay(&self) -> bool;
}

/// Values by session, the one used least recently first.
#[derive(Debug)]
pub struct Cache<V, E> {
    options: CacheOptions,
    held: Mutex<Held<V, E>>,
}

#[derive(Debug)]
struct Held<V, E> {
    values: HashMap<SessionId, Slot<V>>,
    /// What may go, and what has to stay.
    order: Order,
    kept: Order,
    bytes: usize,
    flights: HashMap<SessionId, Arc<Flight<V, E>>>,
}

#[derive(Debug)]
struct Slot<V> {
    value: Arc<V>,
    bytes: usize,
    tick: u64,
    is_kept: bool,
}

/// What somebody who wants to load finds.
enum Boarded<V, E> {
    There(Arc<V>),
    Begun(Arc<Flight<V, E>>),
    UnderWay(Arc<Flight<V, E>>),
}

impl<V: Weighed, E: Clone> Cache<V, E> {
    /// An empty cache.
    pub fn new(options: CacheOptions) -> Self {
        let held = Held {
            values: HashMap::new(),
            order: Order::default(),
            kept: Order::default(),
            bytes: 0,
            flights: HashMap::new(),
        };
        Cache { options, held: Mutex::new(held) }
    }

    /// A value, which thereby becomes the one used last.
    pub fn get(&self, id: &SessionId) -> Option<Arc<V>> {
        self.held.lock().touch(id)
    }

    /// A value, without counting as a use.
    pub fn peek(&self, id: &SessionId) -> Option<Arc<V>> {
        self.held.lock().values.get(id).map(|slot| slot.value.clone())
    }

    /// Loads a value and keeps it, unless another one than the caller has seen is there by now. Whoever asks for the
    /// same one meanwhile waits and gets what the first one gets.
    pub fn load(
        &self,
        id: &SessionId,
        seen: Option<&Arc<V>>,
        load: impl FnOnce() -> Result<V, E>,
    ) -> Result<Arc<V>, E> {
        loop {
            let boarded = self.held.lock().board(id, seen);
            match boarded {
                Boarded::There(value) => return Ok(value),
                Boarded::Begun(flight) => return self.fly(id, &flight, load),
                Boarded::UnderWay(flight) => {
                    if let Some(result) = flight.wait() {
                        return result;
                    }
                }
            }
        }
    }

    fn fly(
        &self,
        id: &SessionId,
        flight: &Arc<Flight<V, E>>,
        load: impl FnOnce() -> Result<V, E>,
    ) -> Result<Arc<V>, E> {
        let landing = flight.landing();
        let loaded = load().map(Arc::new);
        self.land(id, flight, &loaded);
        landing.tell(loaded)
    }

    /// What was loaded is kept, unless somebody put something newer meanwhile.
    fn land(&self, id: &SessionId, flight: &Arc<Flight<V, E>>, loaded: &Result<Arc<V>, E>) {
        let mut held = self.held.lock();
        if held.flights.get(id).is_some_and(|current| Arc::ptr_eq(current, flight)) {
            held.flights.remove(id);
            match loaded {
                Ok(value) => held.insert(id, value.clone(), &self.options),
                Err(_) => drop(held.remove(id)),
            }
        }
    }

    /// Keeps a value that is newer than any load under way.
    pub fn put(&self, id: &SessionId, value: V) -> Arc<V> {
        let value = Arc::new(value);
        let mut held = self.held.lock();
        held.flights.remove(id);
        held.insert(id, value.clone(), &self.options);
        value
    }

    /// Forgets a value, and what a load under way may bring.
    pub fn remove(&self, id: &SessionId) {
        let mut held = self.held.lock();
        held.flights.remove(id);
        drop(held.remove(id));
    }

    /// What is held, the one used least recently first.
    pub fn ids(&self) -> Vec<SessionId> {
        let held = self.held.lock();
        let mut ids: Vec<(u64, &SessionId)> = held.values.iter().map(|(id, slot)| (slot.tick, id)).collect();
        ids.sort_unstable();
        ids.into_iter().map(|(_, id)| id.clone()).collect()
    }

    /// How much is held.
    pub fn size(&self) -> CacheSize {
        let held = self.held.lock();
        CacheSize { sessions: held.values.len(), bytes: held.bytes }
    }

    /// The bytes of what is held.
    pub fn bytes(&self) -> usize {
        self.held.lock().bytes
    }
}

impl<V: Weighed, E: Clone> Held<V, E> {
    fn order_of(&mut self, is_kept: bool) -> &mut Order {
        if is_kept { &mut self.kept } else { &mut self.order }
    }

    fn touch(&mut self, id: &SessionId) -> Option<Arc<V>> {
        let slot = self.values.get_mut(id)?;
        let order = if slot.is_kept { &mut self.kept } else { &mut self.order };
        slot.tick = order.renew(slot.tick);
        Some(slot.value.clone())
    }

    fn board(&mut self, id: &SessionId, seen: Option<&Arc<V>>) -> Boarded<V, E> {
        if let Some(under_way) = self.flights.get(id).filter(|flight| !flight.is_abandoned()) {
            return Boarded::UnderWay(under_way.clone());
        }
        let is_new = |slot: &&Slot<V>| seen.is_none_or(|seen| !Arc::ptr_eq(seen, &slot.value));
        if let Some(slot) = self.values.get(id).filter(is_new) {
            return Boarded::There(slot.value.clone());
        }
        let flight = Arc::new(Flight::default());
        self.flights.insert(id.clone(), flight.clone());
        Boarded::Begun(flight)
    }

    fn insert(&mut self, id: &SessionId, value: Arc<V>, options: &CacheOptions) {
        drop(self.remove(id));
        let (bytes, is_kept) = (value.bytes(), value.must_stay());
        if bytes > options.bytes_max && !is_kept {
            return;
        }
        let tick = self.order_of(is_kept).add(id);
        self.values.insert(id.clone(), Slot { value, bytes, tick, is_kept });
        self.bytes += bytes;
        self.make_room(options);
    }

    fn make_room(&mut self, options: &CacheOptions) {
        let is_over = |held: &Self| held.values.len() > options.sessions_max || held.bytes > options.bytes_max;
        if is_over(self) {
            self.reconsider();
        }
        while is_over(self) {
            let Some(oldest) = self.order.oldest().cloned() else { break };
            drop(self.remove(&oldest));
        }
    }

    /// Asks one of those that had to stay whether it still has to, so that none stays for ever and nobody waits for all.
    fn reconsider(&mut self) {
        let Some(id) = self.kept.oldest().cloned() else { return };
        let Some(slot) = self.values.get_mut(&id) else { return };
        self.kept.take(slot.tick);
        slot.is_kept = slot.value.must_stay();
        slot.tick = if slot.is_kept { self.kept.add(&id) } else { self.order.add(&id) };
    }

    fn remove(&mut self, id: &SessionId) -> Option<Arc<V>> {
        let slot = self.values.remove(id)?;
        self.order_of(slot.is_kept).take(slot.tick);
        self.bytes -= slot.bytes;
        Some(slot.value)
    }
}

#[cfg(test)]
mod tests;
