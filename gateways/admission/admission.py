"""The one path that every publish and subscription of every door takes: authenticate, authorize, quota, trace.

Nothing here runs per message: a principal is made per connection, a place per new address (`places` remembers it
with the verdict), `charge` is called once per burst. What a principal may is remembered until rights change.
"""
from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet, WeakValueDictionary

from gatehouse.gateways.admission.accounts import Accounts
from gatehouse.gateways.admission.administration import somebody_administers
from gatehouse.gateways.admission.attempt import Gone, OnAuthenticated, never
from gatehouse.gateways.admission.audit import Audit, By
from gatehouse.gateways.admission.credentials import Credentials
from gatehouse.gateways.admission.decision import Decide, Operation
from gatehouse.gateways.admission.errors import Denied as Denied
from gatehouse.gateways.admission.errors import LoginsFull as LoginsFull
from gatehouse.gateways.admission.errors import NotAuthenticated as NotAuthenticated
from gatehouse.gateways.admission.errors import Overloaded, TooManyConnections
from gatehouse.gateways.admission.guard import RightsCache
from gatehouse.gateways.admission.limits.book import LimitBook
from gatehouse.gateways.admission.limits.charging import Charging
from gatehouse.gateways.admission.limits.handing_out import HandingOut
from gatehouse.gateways.admission.limits.limit import IN, QUOTA, Limit, Quota
from gatehouse.gateways.admission.limits.meter import charge_all
from gatehouse.gateways.admission.limits.stored import look_at
from gatehouse.gateways.admission.login import Login
from gatehouse.gateways.admission.own_topics import ROUTES as OWN_ROUTES
from gatehouse.gateways.admission.patterns import speaks_of_client
from gatehouse.gateways.admission.places import GivenPlaces
from gatehouse.gateways.admission.ports import Outside
from gatehouse.gateways.admission.principal import ANONYMOUS, Principal
from gatehouse.gateways.admission.rights import Rights, Verdict
from gatehouse.gateways.admission.routed import RoutedTopics
from gatehouse.gateways.admission.rule_set import RuleSet
from gatehouse.gateways.admission.rules import Rule
from gatehouse.gateways.admission.scram import ScramServer
from gatehouse.gateways.admission.session_registry import (
    LooksAgain,
    RegisteredSession,
    Registration,
    SessionRegistry,
)
from gatehouse.gateways.admission.tokens import Issuer, JwtSettings
from gatehouse.gateways.admission.trace import Refusals, Trace, address_of
from gatehouse.gateways.circuits import ISSUER_CIRCUIT, TargetCircuits
from gatehouse.kernel.addresses.routes import Routes
from gatehouse.kernel.groups.sharing import parse_share
from gatehouse.kernel.message import Allowed, Judge
from gatehouse.kernel.shedding import Rung

if TYPE_CHECKING:
    from gatehouse.kernel.api import HubPort, KernelPort
    from gatehouse.kernel.message import Owner, Place, Placement
    from gatehouse.kernel.shedding import Shedding


log = logging.getLogger("gatehouse.admission")

NO_ROUTES: Final = Routes((), OWN_ROUTES)


class Admission:
    """`accounts` holds users, keys and rules (none by default), `outside` what logging in takes beyond this thread.

    `now_ms` is hub time, `wall_ms` wall time: the same where it is not given. For tests: `decision` stands in for all
    rights, `quotas` maps principals' names to limits beside the accounts'.
    """

    def __init__(self, kernel: HubPort, now_ms: Callable[[], int], *, allow_anonymous: bool = True,
                 quotas: Mapping[str, Quota] | None = None, decision: Decide | None = None,
                 accounts: Accounts | None = None, outside: Outside | None = None, routes: Routes = NO_ROUTES,
                 wall_ms: Callable[[], int] | None = None) -> None:
        self.anonymous = Principal(ANONYMOUS, anonymous=True)
        self.accounts = accounts or Accounts()
        self.trace = Trace()
        self._kernel = kernel
        self._now_ms = now_ms
        self._wall_ms = wall_ms = wall_ms or now_ms
        self._given_quotas = dict(quotas or {})
        self._decide = decision
        self._outside = outside
        self._topics = RoutedTopics(routes)
        self._registry = SessionRegistry(outside.loop if outside is not None else None, self.ends_ms)
        self._refusals = Refusals(now_ms)
        self._login = Login(self.accounts, self.anonymous, self.trace, now_ms, wall_ms, outside, allow_anonymous)
        self._audit = Audit(kernel, wall_ms, log.error)
        self._places: WeakValueDictionary[tuple[Principal, KernelPort], GivenPlaces] = WeakValueDictionary()
        self._every_place: WeakSet[GivenPlaces] = WeakSet()          # also what a session alone still holds
        self._settling: list[Callable[[], None]] = []
        self.issuer_circuits = TargetCircuits(ISSUER_CIRCUIT)
        """Of whoever gives out the key set of `[auth.jwt]`."""

        self.limits = LimitBook()
        """Every limit of the hub, the quotas of users among them."""

        self._read_limits()
        self._rules = self.compiling(self.accounts.file_rules)()
        self.version = object()
        """Another object once a user, a rule or a way to log in has changed: what was known before holds no more."""

    @property
    def allow_anonymous(self) -> bool:
        """Whether a peer without credentials is let in."""
        return self._login.allow_anonymous

    def let_anonymous_in(self, allowed: bool) -> None:
        """At a reload: whether peers without credentials are let in. Where not, connections of anonymous end."""
        if self._login.let_anonymous_in(allowed) != allowed:
            self._rights_changed(ANONYMOUS)
            if not allowed:
                self._registry.end(ANONYMOUS, "", "anonymous access has ended")

    @property
    def shedding(self) -> Shedding:
        """What is left undone under overload; `look_at_overload` once it is more or less."""
        return self._kernel.shedding

    # --- who ---------------------------------------------------------------------------------------------------------

    def authenticate(self, door: str, peer: str, credentials: Credentials, on_done: OnAuthenticated,  # decision 91
                     gone: Gone = never) -> None:
        """Find the principal behind these credentials and call `on_done` with it, or with why there is none.

        `on_done` is called before this returns where the answer is known at once (nobody, a password proven recently,
        a token, a certificate); otherwise later, on the hub's thread: passwords are checked by another thread, and
        refusals are slowed. The door lets its peer wait meanwhile; `gone` is asked, when its turn comes, whether it has
        hung up, so that no password is checked for nobody. A refusal that is a LoginsFull says nothing about the
        credentials: they were not looked at, and the peer may try again at once.

        While anonymous access is allowed a peer without credentials is `anonymous`, and so is one with an account that
        its protocol's clients have preset (`Credentials.preset`).
        """
        def answer(who: Principal | NotAuthenticated) -> None:
            if isinstance(who, NotAuthenticated):
                self._note_refused(door, peer, who)
            on_done(who)

        self._login.authenticate(door, peer, credentials, answer, gone)

    def _note_refused(self, door: str, peer: str, who: NotAuthenticated) -> None:
        self._refusals.note(door, address_of(peer), who.code, str(who))

    def scram(self, door: str, peer: str, mechanism: str) -> ScramServer:
        """The server's side of one SCRAM login; `mechanism` is SCRAM-SHA-256 or SCRAM-SHA-512. Raises ValueError."""
        return self._login.scram(door, peer, mechanism, partial(self._note_refused, door, peer))

    def known_by_client(self, principal: Principal, client_id: str) -> Principal:
        """The principal for this client id: the same object unless some rule for it speaks of `{client_id}`, or the
        restriction of its API key."""
        if self._rules.speaks_of_client_to(principal.name, self.groups(principal)) \
                or any(speaks_of_client(rule.pattern) for rule in principal.restriction or ()):
            return principal.elsewhere(principal.tenant, client_id)
        return principal

    def register(self, principal: Principal, door: str, session: RegisteredSession,
                 guard: LooksAgain | None = None) -> Registration:
        """A connection that has logged in: it is told when its principal ends or its rights change, until it leaves.
        `guard` looks again before it is told of its rights."""
        return self._registry.take(principal, door, session, guard)

    def connect(self, principal: Principal, door: str, session: RegisteredSession,
                guard: LooksAgain | None = None, replaces: bool = False) -> Registration:
        """`register` for a connection that lasts. `replaces`: another one goes for it. Raises TooManyConnections,
        Overloaded."""
        if not replaces:
            if self.shedding.leaves(Rung.NEW_CONNECTIONS):
                self.trace.on_event(door, Overloaded.code)
                raise Overloaded
            counts = self._registry.connections
            for limit, kind, name in self.limits.of_connections(door, principal.name, principal.tenant):
                if not limit.observe and counts[kind, name] >= (limit.connections or 0):
                    self.trace.on_event(door, TooManyConnections.code)
                    raise TooManyConnections(f"the limit {limit.id} lets {limit.of} have {limit.connections} "
                                             "connections, and there are as many")
        return self._registry.take(principal, door, session, guard, lasts=True)

    def ends_ms(self, principal: Principal) -> int:  # decision 89
        """When the principal may be connected no longer, as things stand: what it logged in with runs out, or its user
        expires. 0: never."""
        user = self.accounts.users.get(principal.name)
        ends = principal.expires_ms, user.expires_ms if user is not None else 0
        return min(ends) or max(ends)

    def groups(self, principal: Principal) -> frozenset[str]:
        """The groups of users that the principal is in."""
        return self.accounts.groups_of(principal.name) | principal.groups

    def tenants(self, principal: Principal) -> frozenset[str]:
        """The tenants that the principal may work in."""
        return principal.tenants

    def in_tenant(self, principal: Principal, tenant: str) -> Principal:
        """This user in another tenant. Raises Denied."""
        if tenant == principal.tenant:
            return principal
        if tenant not in principal.tenants:
            raise Denied(f"{principal.name} is not of the tenant {tenant!r}")
        return self._login.in_tenant(principal, tenant)

    def is_gone(self, name: str) -> bool:
        """Whether nobody may log in by this name any more."""
        return self._decide is None and self._login.is_gone(name)

    def look_at_overload(self) -> None:
        """The level of shedding is another."""
        self.limits.hold_publishing(self.shedding.level >= Rung.PUBLISHERS)

    def look_at_stored(self) -> None:
        """Find how much is stored of what limits bound: to be called now and then."""
        self.limits.settle()
        for meter, tenant, topic in self.limits.meters_of_stored() if self.limits.stored else ():
            topics = [self._kernel.topic(topic, tenant)] if topic else self._kernel.topics(tenant)
            look_at(meter, [each for each in topics if each is not None], self._kernel)

    # --- may they ----------------------------------------------------------------------------------------------------

    def may(self, principal: Principal, operation: Operation, address: str) -> bool:
        """Whether the principal may do this at an address (or, to consume, with a filter)."""
        return self.standing(principal).may(operation, address)

    def may_some(self, principal: Principal, operation: Operation, filter_text: str) -> bool:
        """Whether the principal may do this somewhere within a filter: who may is shown that something is there."""
        if self._decide is not None:
            return self._decide(principal, operation, filter_text)
        rights = self.standing(principal).rights
        return rights is None or rights.of_some(operation, filter_text)

    def require(self, principal: Principal, operation: Operation, address: str, said: bytes = b"") -> None:
        """`may`, or Denied. `said`: of a message, see `Refusals.note`."""
        if not self.may(principal, operation, address):
            raise self.denied(principal, operation, f"{principal.name} may not {operation.value} at {address!r}", said)

    def restricts(self, principal: Principal, operation: Operation, address: str) -> bool:
        """Whether what the principal logged in by is restricted to something else, whatever its user may."""
        rights = self.standing(principal).rights if principal.restriction is not None else None
        return rights is not None and rights.restricts(operation, address)

    def may_create(self, principal: Principal, address: str) -> bool:
        """Whether publishing at an address has its topic made, should there be none."""
        if self._decide is not None:
            return self._decide(principal, Operation.CREATE, address)
        rights = self.standing(principal).rights
        return rights is None or rights.of_creating(address).allowed

    def may_topic(self, principal: Principal, operation: Operation, topic: str) -> bool:
        """Whether the principal may do this with a topic as a whole: consume or publish all of it, create, alter it."""
        return self.standing(principal).may_topic(operation, topic)

    def require_topic(self, principal: Principal, operation: Operation, topic: str, said: bytes = b"") -> None:
        """`may_topic`, or Denied. `said`: of a message, see `Refusals.note`."""
        if not self.may_topic(principal, operation, topic):
            raise self.denied(principal, operation, f"{principal.name} may not {operation.value} the topic {topic!r}",
                              said)

    def may_group(self, principal: Principal, operation: Operation, group: str) -> bool:
        """Whether the principal may consume with a group, alter it, or transact in it."""
        if self._decide is not None:
            return self._decide(principal, operation, group)
        rights = self.standing(principal).rights
        return rights is None or rights.of_group(operation, group).allowed

    def may_share(self, principal: Principal, name: str) -> bool:
        """Whether a principal may take part in a shared filter, by its name `$share/GROUP/FILTER`: consume with the
        group, and all that the filter matches. Raises InvalidFilter."""
        group, filter_text = parse_share(name)
        return (self.may_group(principal, Operation.CONSUME, group)
                and self.may(principal, Operation.CONSUME, filter_text))

    def require_group(self, principal: Principal, operation: Operation, group: str) -> None:
        """`may_group`, or Denied."""
        if not self.may_group(principal, operation, group):
            raise self.denied(principal, operation,
                              f"{principal.name} may not {operation.value} with the group {group!r}")

    def may_have_client_id(self, principal: Principal, client_id: str) -> bool:
        """Whether the principal may connect by a client id, which names one connection of a door at a time."""
        if self._decide is not None:
            return True
        rights = self.standing(principal).rights
        return rights is None or rights.of_client(Operation.CONNECT, client_id).allowed

    def may_hub(self, principal: Principal, operation: Operation) -> bool:
        """Whether the principal may administer the hub, or be its relay."""
        if self._decide is not None:
            return self._decide(principal, operation, "")
        rights = self.standing(principal).rights
        return rights is None or rights.of_hub(operation).allowed

    def require_hub(self, principal: Principal, operation: Operation) -> None:
        """`may_hub`, or Denied."""
        if not self.may_hub(principal, operation):
            raise self.denied(principal, operation, f"{principal.name} may not {operation.value} this hub")

    def note_refusal(self, door: str, who: str, reason: str, text: str, said: bytes = b"") -> None:
        """Somebody was refused something: a line in the log, see `Refusals.note`."""
        self._refusals.note(door, who, reason, text, said)

    def denied(self, principal: Principal, operation: Operation, text: str, said: bytes = b"") -> Denied:
        """The refusal, of which the log has a line."""
        self._refusals.note("", principal.name, f"{Denied.code}_{operation.value}", text, said)
        return Denied(text)

    @property
    def somebody_administers(self) -> bool:
        """Whether a user may administer the hub, or anonymous; whom tokens name is not known."""
        accounts = self.accounts
        return somebody_administers(accounts, accounts.users, accounts.every_rule(), self.allow_anonymous)

    def explain(self, name: str, ask: Callable[[Rights], Verdict], *, groups: Iterable[str] = (),
                tenant: str | None = None, client_id: str | None = None) -> Verdict:
        """What would be decided for a user, who need not exist, and why. `groups`: those of a token, say."""
        if name == ANONYMOUS and self._is_open:
            return Verdict(True, "allowed: anonymous access is open, and no rule speaks of anonymous or of everyone")
        user = self.accounts.users.get(name)
        if user is not None and user.disabled:
            return Verdict(False, "denied: the user is disabled")
        if user is not None and not user.may_log_in(self._wall_ms()):
            return Verdict(False, "denied: the user has expired")
        home = tenant or (user.tenant if user is not None else self.anonymous.tenant)
        every_group = self.accounts.groups_of(name) | frozenset(groups)
        return ask(self._rules.rights(name, every_group, home, client_id))

    @property
    def _is_open(self) -> bool:
        """A hub on loopback on which nobody has said what anonymous may: everything, as before there were rules."""
        return self.allow_anonymous and not self._rules.speaks_of_anonymous

    def standing(self, principal: Principal) -> RightsCache:  # decision 84
        """What the principal may, as long as `version` is the same."""
        standing = principal.standing
        if standing is None or standing.version is not self.version:
            decide = None if self._decide is None else partial(self._decide, principal)
            standing = principal.standing = RightsCache(self.version, self._rights(principal), decide)
        return standing

    def _rights(self, principal: Principal) -> Rights | None:
        if principal.anonymous and self._is_open:
            return None
        return self._rules.rights(principal.name, self.groups(principal), principal.tenant, principal.client_id,
                                  principal.restriction)

    def place(self, principal: Principal, address: str) -> Placement:
        """Where a message for `address` goes. Raises Denied and what `kernel.place` raises."""
        self.require(principal, Operation.PUBLISH, address)
        return self._kernel.place(address, tenant=principal.tenant, maker=principal.name,
                                  may_create=self.may_create(principal, address))

    def maker(self, principal: Principal) -> str:
        """For whom a topic counts that the principal creates by its name: for nobody, where he administers the hub."""
        return "" if self.may_hub(principal, Operation.ADMINISTER) else principal.name

    def places(self, principal: Principal, port: KernelPort) -> GivenPlaces:
        """What the principal was given on a door, for as long as a session of his is there."""
        places = self._places.get((principal, port))
        if places is None:
            places = self._places[principal, port] = GivenPlaces(port, self.judge_of_receipts(principal))
            self._every_place.add(places)
        return places

    def judge_of_receipts(self, principal: Principal, client_id: str = "") -> Judge:
        """Says of an address whether receipts may go there, as the principal may publish there himself."""
        return partial(self._of_receipt, principal, client_id)

    def _of_receipt(self, principal: Principal, client_id: str, address: str) -> Allowed | None:
        sender = self.known_by_client(principal, client_id)
        if not self.may(sender, Operation.PUBLISH, address):
            return None
        return Allowed(self.may_create(sender, address), sender.name)

    def settle_before_forgetting(self, settle: Callable[[], None]) -> None:
        """Call this whenever places are about to be forgotten: what was judged already is appended."""
        self._settling.append(settle)

    def forget_places(self) -> None:
        """Topics, routes or rights have changed: every address is looked up and judged anew."""
        for settle in self._settling:
            settle()
        for places in self._every_place:
            places.clear()

    # --- how much ----------------------------------------------------------------------------------------------------

    def charging(self, door: str, look: Callable[[int], Place], fails: Callable[[str], bool]) -> Charging:
        """What weighs and charges what one guard sends."""
        return Charging(self.limits, self._now_ms, door, look, fails)

    def handing_out(self, door: str) -> HandingOut:
        """What weighs and charges what one guard hands out."""
        return HandingOut(self.limits, self._now_ms, door)

    def charge(self, door: str, principal: Principal, messages: int, size_bytes: int) -> int:
        """Count and charge a burst that was taken without a guard; returns for how many ms its sender is to be slowed
        down (0: not at all)."""
        flow = self.trace.flow(door)
        flow.messages_in += messages
        flow.bytes_in += size_bytes
        if not self.limits.limits_in:
            return 0
        now_ms = self._now_ms()
        meters = self.limits.of_connection(IN, door, principal.name, self.groups(principal), principal.tenant,
                                           principal.client_id or "", now_ms)
        return charge_all(meters, messages, size_bytes, 1, now_ms)

    def _read_limits(self) -> None:
        """The limits of the accounts and of the configuration are in the book, as they are now."""
        book, accounts, now_ms = self.limits, self.accounts, self._now_ms()
        quotas = {name: user.quota for name, user in accounts.users.items() if user.quota != Quota()}
        book.put_quotas({**quotas, **self._given_quotas}, now_ms)
        wanted = {limit.id: limit for limit in accounts.every_limit()}
        for limit in [limit for limit in book if limit.id not in wanted and not limit.id.startswith(QUOTA)]:
            book.remove(limit.id)
        for limit in wanted.values():
            if book.get(limit.id) != limit:
                book.put(limit, now_ms)

    def on_limit_changed(self, before: Limit | None, after: Limit | None) -> None:
        """See `administration.Affected`: it holds with the next message, for those who are connected too."""
        if after is not None:
            self.limits.put(after, self._now_ms())
        elif before is not None:
            self.limits.remove(before.id)

    # --- what has changed --------------------------------------------------------------------------------------------

    def audit(self, by: By, action: str, details: Mapping[str, Any]) -> None:
        """Say on the topic `audit` who, from where, has changed what; no secret is in `details`."""
        self._audit.write(by, action, details)

    def audit_kept(self, message: dict[str, Any], owner: Owner, key: str) -> None:
        """See `Audit.write_message`."""
        self._audit.write_message(message, owner, key)

    def on_user_changed(self, name: str, ended: str, logins: str) -> None:
        """See `administration.Affected`."""
        self._login.forget(name)
        self._registry.ends_changed(name)
        user = self.accounts.users.get(name)
        self.limits.put_quota(name, self._given_quotas.get(name) or (user.quota if user is not None else Quota()),
                              self._now_ms())
        self._rights_changed(name)
        if ended:
            self._registry.end(name, logins, ended)

    def on_rule_changed(self, before: Rule | None, after: Rule | None) -> None:
        """See `administration.Affected`: every decision is made anew, and who is connected looks at what it holds."""
        if before is not None:
            self._rules.remove(before)
        if after is not None:
            self._rules.add(after)
        self._rights_changed(None)

    def _rights_changed(self, name: str | None) -> None:  # decision 95
        self.version = object()
        self.forget_places()
        self._registry.rights_changed(name)

    def compiling(self, rules: Iterable[Rule]) -> Callable[[], RuleSet]:  # decision 81
        """What compiles these rules of a configuration with those of the database: for any thread, as it takes 10 µs a
        rule. What changes meanwhile `configure` sees to."""
        every_rule = [*rules, *self.accounts.rules.values()]
        return lambda: RuleSet(every_rule, self._topics).prepare()

    def configure(self, rules: Iterable[Rule], groups: Mapping[str, Iterable[str]], jwt: JwtSettings | None,
                  compiled: RuleSet | None = None, limits: Iterable[Limit] = ()) -> None:
        """What the configuration says of rights, limits and tokens, at the start and at each reload, where its rules
        come `compiled`: those of before hold until now."""
        changed = self.accounts.configure(rules, groups, limits)
        self._read_limits()
        login, before = self._login, self._login.issuer
        if jwt != (before.settings if before is not None else None):
            if before is not None:
                before.close()
                self._forget_tokens()
            self.issuer_circuits = TargetCircuits(ISSUER_CIRCUIT, 1 if jwt is None else len(jwt.key_sets))
            login.issuer = None if jwt is None or self._outside is None \
                else Issuer(jwt, self._outside, self.issuer_circuits, log.error, self._forget_tokens)
        elif before is not None:
            before.read_again()
        if changed:
            self._rules = compiled or self.compiling(self.accounts.file_rules)()
            self._rules.become(self.accounts.every_rule())
            self._rights_changed(None)

    def _forget_tokens(self) -> None:
        """Every token is verified anew, also that of a connection that has shown it before."""
        self._login.tokens.clear()
        self.version = object()

    def on_issuer_circuit(self) -> None:
        """People have opened a circuit of the issuer's, or closed it."""
        if self._login.issuer is not None:
            self._login.issuer.on_circuit()

    def close(self) -> None:
        """No key set is read any more."""
        if self._login.issuer is not None:
            self._login.issuer.close()

    def statistics(self) -> dict[str, int]:
        """For the metrics page."""
        issuer = self._login.issuer
        return {"users": len(self.accounts.users), "api_keys": len(self.accounts.keys),
                "rules": len(self._rules), "registrations": len(self._registry),
                "jwks_failures": issuer.failures if issuer is not None else 0, **self._login.statistics}
