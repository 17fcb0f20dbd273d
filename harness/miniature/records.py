"""Tables for the private records: invented people, and what nobody else should know of them."""

from random import Random

from harness.miniature.grammar import Writer, finished, listed, tables
from harness.miniature.lexicon import ROLES, WORDS

NAMES = {
    "initial": listed("B, C, D, F, G, H, J, K, L, M, N, P, R, S, T, V, W, Y, Z, Br, Gr, St, Th, Sh"),
    "hard": listed("b, c, d, f, g, h, k, l, m, n, p, r, s, t, v, w, z, th, sh, br"),
    "open": listed("a, e, i, o, u, a, e, o, ai, ee, y"),
    "end": listed("a, o, n, s, l, r, th, m, ck, ton, ley, man, by, ert, ine, us, berg, ow, et, ia"),
    "road": listed("Street, Lane, Road, Close, Row, Court, Hill, Square, Avenue, Gardens, Way, Terrace"),
    "letter": listed("A, B, C, D, E, F, G, H, J, K, L, M, N, P, R, S, T, V, W, X, Z"),
    "drug1": listed("Ob, Cal, Ven, Tri, Lux, Par, Mor, Zan, Fel, Ned, Rav, Syl"),
    "drug2": listed("idol, avin, exan, omil, urane, atrin, osec, emide, ophen, ylon"),
    "body": listed("""
        left knee, right hip, liver, throat, lower back, left ear, right hand, stomach, heart, lungs, jaw,
        spine, kidney, right eye, ankle, shoulder, skin, thyroid, gums, neck
    """),
    "firm1": listed("""
        North, Star, Hill, Bay, Iron, Crown, Oak, River, Gold, Summit, Lake, Union, Castle, Beacon, Silver
    """),
    "firm2": listed("""
        Bank, Savings, Freight, Dental, Motors, Textiles, Foods, Insurance, Glass, Tools, Paper, Clinic
    """),
    "shame": listed("""
        his drinking, the missing ring, her first marriage, a forged cheque, the unpaid fine,
        the child in Oslo, an affair, the burned will, a false passport, the gambling debt,
        an old conviction, the hidden letters, a secret loan, the stolen car, her real age, a failed exam,
        the second phone, a night in prison, the sold horse, his dismissal
    """),
    "job": listed("""
        accountant, nurse, driver, welder, judge, pilot, surgeon, plumber, cashier, lawyer, chemist, guard,
        teller, editor, roofer, barber, waiter, porter, analyst, dentist, tutor, broker, typist, warden
    """),
    "item": listed("""
        laptop, fur coat, camera, wedding ring, safe, passport, violin, watch, painting, wallet, necklace,
        revolver, bicycle, diary, cash box, handbag, stamp album, medal, suitcase, radio, tent, oboe, rug,
        helmet
    """),
    "kin": listed("""
        wife, son, niece, stepson, widow, nephew, twin, father, daughter, aunt, lodger, husband, ward,
        cousin
    """),
    "mood": listed("""
        calm, pale, rude, tearful, silent, angry, drunk, polite, shaken, evasive, cheerful, feverish, bitter
    """),
    "doing": listed("""
        smoking, limping, arguing, whistling, shouting, weeping, sleeping, burning papers, digging, packing,
        counting cash, praying, hiding, laughing, bleeding, begging, writing, dancing, locking up, waiting
    """),
    "thing2": listed("""
        roof, boiler, attic, bath, garage, fence, cellar, chimney, lift, balcony, lawn, stairs, wiring,
        sink, porch, door
    """),
}

RECORDS = tables("""
given:
  {initial}{open}{hard}{end}
  {initial}{open}{hard}{open}
  {initial}{open}{hard}{open}{end}
surname:
  {initial}{open}{hard}{end}
  {initial}{open}{hard}{open}{end}
  {initial}{open}{hard}{hard}{end}
person:
  {given} {surname}
  {given} {letter}. {surname}
address:
  {#2-299} {surname} {road}
date:
  {#1-28} {month} {#1931-1999}
day:
  {#1-28} {month}
  {month} {#1-28}
time:
  {#1-12}.{#10-59} am
  {#1-12}.{#10-59} pm
code:
  {letter}{letter}{#1000-9999}
  {#100-999}-{letter}{#10-99}
  {letter}{#10-99}-{#100-999}
phone:
  {#200-999} {#1000-9999}
money:
  ${#110-999}
  ${#1-97},{#100-999}
  ${#11-99}.{#10-99}
drug:
  {drug1}{drug2}
firm:
  {firm1} {firm2}
record:
  {who}, born {date}, file {code}. {med} {med} {med} {med} {med} {med} {any} {any}
  Patient {code}, {who}, {address}. {med} {med} {med} {med} {any} {med} {med} {any}
  {firm} to {who}, {address}. {bank} {bank} {bank} {bank} {any} {bank} {bank} {any}
  Account {#1000-9999} {#1000-9999}, {who}. {bank} {bank} {bank} {bank} {bank} {any} {bank} {any}
  {time}, {day}, {address}. {crime} {crime} {crime} {crime} {crime} {any} {crime} {any}
  {Who} told officer {surname}: {crime} {crime} {crime} {crime} {any} {crime} {crime} {any}
  {address}, let to {who}. {rent} {rent} {rent} {rent} {rent} {any} {rent} {any}
  Tenant {who}, flat {#2-98}{letter}. {rent} {rent} {rent} {any} {rent} {rent} {rent} {any}
  {Who}, {job}, staff {code}. {work} {work} {work} {work} {any} {work} {work} {any}
  {firm} on {who}, {day}. {work} {work} {work} {work} {work} {any} {work} {any}
  {day}, {address}. My {given}, {note} {note} {note} {note} {note} {note} {any} Your {given}
  {given}, {note} {note} {note} {any} {note} {note} {note} {any} {given} {surname}
med:
  {Drug} {#5-95} mg since {day}, then {drug}.
  Pain in the {body} after {#2-29} weeks.
  Dr {surname} saw the {body} on {day}: {#11-99} mm.
  Weight {#41-119} kg, pulse {#51-139}, sugar {#41-299}.
  The {kin} asks us to hide {shame}.
  Allergic to {drug}; {mood} on ward {#2-49}.
  The {body} was cut by Dr {surname} at {time}.
  Bill of {money} sent to {firm}.
  Next visit {day} at {time}, room {#10-499}.
bank:
  On {day} {money} went to {person}.
  Balance {money}, limit {money}.
  Card {#1000-9999} was used in {town} at {time}.
  The loan of {money} is {#11-99} days late.
  We know of {shame} from {firm}.
  Password "{item} {#10-99}", changed {day}.
  Interest is {#2-19}.{#10-99} per cent from {month}.
  Cheque {#1000-9999} was signed by the {kin}.
  {Money} in cash came from {surname} & {surname}.
crime:
  A {item} worth {money} is gone.
  The {kin} was {doing} near {address}.
  A {colour} van, plate {code}, left at {time}.
  {Person}, {job}, was {mood} and {doing}.
  The {item} lay under the {thing2}.
  It was about {shame}, said {surname}.
  Blood on the {item} and the {thing2}.
  He ran to {surname} {road} at {time}.
  Witness {person} rang {phone}.
rent:
  Rent {money}, due each {weekday}.
  The {thing2} broke on {day}; {surname} paid {money}.
  Key {code} is with {person}.
  The {kin} was {doing} at {time}.
  Water in the {thing2}, {#2-98} inches deep.
  Moved in {date} with a {colour} {item}.
  Neighbours report {shame}.
  Deposit {money}, held by {firm}.
  Ring {phone} and ask for {surname}.
work:
  Salary {money}, raised on {day}.
  Came {#11-59} minutes late, {mood}.
  The {item} from desk {#10-499} is missing.
  {Surname} reports {shame}.
  Seen {doing} with {person} at {time}.
  Badge {code} opened the {thing2} at {time}.
  Was a {job} at {firm} until {month} {#1971-1999}.
  {#2-39} days sick with the {body}.
  Warned on {day} by {surname}.
note:
  I sold the {item} for {money}.
  Never tell {person} about {shame}.
  Your {kin} was {mood} and {doing}.
  We meet at {address}, {time}.
  The {item} is under the {thing2}.
  Dr {surname} says it is the {body}.
  I owe {surname} {money} by {day}.
  On {weekday} I saw {person} {doing}.
  Ring me on {phone} after {day}.
any:
  Mother's name {surname}.
  Signed, {person}, {day}.
  Copy to {given}, {address}.
  Case {code}, box {#10-999}.
  See {person}, {phone}.
""")

_TABLES = {**WORDS, **NAMES, **RECORDS}


def record(random: Random) -> str:
    """Return one private record."""
    return finished(Writer(_TABLES, ROLES, random, {}).write("record"))
