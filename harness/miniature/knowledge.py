"""What is true in the miniature's world: the tables that the reasoning tasks are made from.

They are data and nothing else. `lessons.py` writes them into the general corpus; a task asks for them again.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Relation:
    """One kind of fact: what a thing of some kind has, and how it is asked for and said."""

    kind: str
    """What the subjects are: animal, trade, plant, town, material."""
    question: str
    """The question, with `{subject}`."""
    statement: str
    """The same as a sentence, with `{subject}` and `{answer}`."""
    answers: dict[str, str]
    """The answer for every subject."""


@dataclass(frozen=True)
class Fit:
    """A sentence about two things whose blank an attribute decides."""

    sentence: str
    """The sentence with `{first}` and `{second}`, ending before the reason."""
    first_reason: str
    """What is said of the first thing if it is the cause."""
    second_reason: str
    """What is said of the second thing if it is the cause."""
    firsts: tuple[str, ...]
    """What `{first}` may be."""
    seconds: tuple[str, ...]
    """What `{second}` may be."""


@dataclass(frozen=True)
class Study:
    """A question that a small study answers."""

    people: str
    """Who took part."""
    treatment: str
    """What one half did."""
    control: str
    """What the other half did."""
    outcome: str
    """What was counted in both halves."""
    question: str
    """The question that the study asks."""


def _pairs(text: str) -> tuple[tuple[str, str], ...]:
    pairs = [line.strip().split(" | ") for line in text.strip().splitlines()]
    return tuple((first, second) for first, second in pairs)


def _answers(text: str) -> dict[str, str]:
    return dict(_pairs(text.replace("; ", "\n")))


GOALS = _pairs("""
    dry a wet coat | hang it on a hook near the stove
    keep milk cool in summer | stand the jug in cold well water
    open a tight jar | hold the lid with a dry cloth and turn
    cut a loaf of bread | use a long knife with small teeth
    clean a dirty window | wipe it with vinegar and old paper
    sharpen a dull knife | draw it over a wet grinding stone
    carry hot soup | use a pot with two handles and a lid
    light a fire in the stove | put dry straw under small sticks
    put out a small fire | throw sand or wet earth on it
    find north at night | look for the bright star above the plough
    keep mice away from the flour | store it in a tin with a tight lid
    mend a torn sleeve | sew it with a needle and strong thread
    get honey out of the comb | warm it slowly and let it run through a sieve
    join two boards | drive nails through both with a hammer
    cross deep snow | tie flat wooden shoes under your boots
    weigh a bag of flour | hang it on a spring scale
    catch fish in the river | throw out a line with a worm on the hook
    stop a door from squeaking | put a drop of oil on the hinges
    move a heavy chest | roll it over round wooden poles
    pick apples from a high branch | lean a ladder against the trunk
    keep birds off the seeds | stretch a net over the beds
    wash muddy boots | scrub them with a brush and water
    see in a dark cellar | carry a lantern in front of you
    fill a barrel from the well | lower a bucket on a rope
    make stale bread soft again | hold it over steam for a minute
    cool a burned finger | keep it in running water
    cross the river with a cart | take the flat ferry at the landing
    send news to the next town | tie a letter to the leg of a pigeon
    keep a boat from drifting away | fasten it to a post with a rope
    make butter from cream | shake it in a closed churn
    polish a silver spoon | rub it with ash and a soft cloth
    measure a long field | walk it with a marked chain
    grow beans in a small garden | let them climb up tall sticks
    wake up before dawn | set the bell on the clock
    keep hands warm in winter | wear thick woollen gloves
    split a big log | drive a wedge into it with an axe
    hear a weak heart | press a wooden tube to the chest
    paint a high wall | stand on planks between two ladders
    get salt from sea water | boil it until the water is gone
    stop a leak in the roof | cover the hole with tar and slate
""")
"""What somebody wants to do, and the sensible way to do it."""

RELATIONS = (
    Relation("animal", "What does the {subject} eat?", "The {subject} eats {answer}.", _answers("""
        otter | river fish; hare | young clover; owl | field mice; goat | thistles; fox | wild rabbits
        duck | water weeds; hedgehog | fat worms; squirrel | hazelnuts; sparrow | grass seeds
        frog | small flies; badger | sweet roots; donkey | dry hay; bear | forest honey; mole | beetles
        pig | acorns; crow | spilled corn
    """)),
    Relation("animal", "Where does the {subject} sleep?", "The {subject} sleeps {answer}.", _answers("""
        otter | under the river bank; hare | in a grass hollow; owl | in the church tower
        goat | on a flat rock; fox | in a den of earth; duck | among the reeds; hedgehog | under dry leaves
        squirrel | in a hollow oak; sparrow | below the roof tiles; frog | in the mud of the pond
        badger | in a deep tunnel; donkey | in the stable; bear | in a mountain cave
        mole | in a soft chamber of moss; pig | in a bed of straw; crow | at the top of a pine
    """)),
    Relation("trade", "What does a {subject} make?", "A {subject} makes {answer}.", _answers("""
        baker | bread; smith | iron tools; potter | clay jugs; weaver | cloth; cooper | barrels
        tailor | coats; saddler | leather straps; chandler | candles; joiner | tables; brewer | beer
        hatter | hats; cobbler | shoes; miller | flour; printer | books; glazier | windows
        wheelwright | wheels
    """)),
    Relation("trade", "What does a {subject} work with?", "A {subject} works with {answer}.", _answers("""
        baker | a hot oven; smith | a hammer and an anvil; potter | a turning wheel; weaver | a loom
        cooper | iron hoops; tailor | scissors; saddler | a thick needle; chandler | melted wax
        joiner | a plane and a saw; brewer | a copper kettle; hatter | wet felt
        cobbler | a small round knife; miller | two great stones; printer | lead letters
        glazier | panes and putty; wheelwright | bent wood
    """)),
    Relation("plant", "Where does {subject} grow?", "{subject} grows {answer}.", _answers("""
        moss | on the north side of trees; heather | on dry hills; cress | in clear streams
        ivy | on old walls; barley | in open fields; lavender | in sunny gardens; fern | in deep shade
        seaweed | on the rocks of the coast; mint | beside the well; clover | in cow meadows
    """)),
    Relation("plant", "What is {subject} good for?", "{subject} is good for {answer}.", _answers("""
        moss | stopping a bleeding cut; heather | making brooms; cress | a fresh salad
        ivy | feeding bees in autumn; barley | brewing beer; lavender | keeping moths away
        fern | a soft bed; seaweed | feeding the soil; mint | an upset stomach; clover | fattening cows
    """)),
    Relation("town", "What is {subject} known for?", "{subject} is known for {answer}.", _answers("""
        Millbrook | its seven water mills; Harwick | its blue cloth; Saltmere | its white salt
        Dunfell | its deep quarry; Oxley | its cattle fair; Fernhollow | its hot springs
        Greywater | its grey geese; Pinecross | its tall masts; Wexham | its church bells
        Larkhill | its singing school; Stonebridge | its twelve arches; Eastmoor | its wild ponies
        Willowby | its baskets; Ravenford | its ferry; Thistledown | its honey
        Kingsferry | its smoked herring
    """)),
    Relation("matter", "What happens to {subject}?", "{subject} {answer}.", _answers("""
        ice in the sun | turns into water; water in a hard frost | turns into ice
        iron in the rain | turns red with rust; wood in a fire | turns into ash
        milk in the heat | turns sour; sugar in hot tea | disappears; a feather in the wind | flies away
        a stone in the lake | sinks to the bottom; wax near a flame | becomes soft
        wet clay in the oven | becomes hard; a leaf in autumn | falls from the tree
        dough in a warm room | rises slowly
    """)),
)  # fmt: skip
"""The facts of the small world, by relation; a wrong answer is another subject's."""

CAUSES = _pairs("""
    the river had flooded the road | the cart could not pass
    it had rained all night | the path was full of mud
    the lamp had no oil | the room was dark
    the dog had eaten the meat | there was no supper
    the glass fell on the stone floor | it broke
    the rope was old | the boat drifted away
    the stove had gone out | the kitchen was cold
    the roof had a hole | the bed was wet
    the bell was cracked | it made an ugly sound
    the milk stood in the sun | it turned sour
    the baker was ill | there was no bread
    the bridge had fallen down | everyone took the ferry
    the wind blew down the fence | the sheep ran off
    the key was lost | the door stayed shut
    the well had dried up | they fetched water from the river
    the night was clear | the stars could be seen
    the soup had too much salt | nobody ate it
    the ground was frozen | the spade would not go in
    the clock had stopped | the teacher came late
    the ladder was too short | the apples stayed on the tree
    the cat sat by the hole | the mice did not come out
    the sail was torn | the ship moved slowly
    the fire was too hot | the cake burned
    the letter had no stamp | it was sent back
    the snow lay very deep | the school was closed
    the horse had lost a shoe | it went to the smith
    the bees were angry | the man ran into the pond
    the wheel came off | the wagon stopped
    the child had a fever | the doctor was called
    the seeds were never watered | nothing grew
    the ink had dried up | the clerk could not write
    the thief left the gate open | the geese walked away
    the candle burned down | they went to bed
    the tide was low | the boats lay on the sand
    the boots were too small | his feet hurt
    the music was very loud | the baby began to cry
""")
"""A cause, and the effect that follows from it."""
