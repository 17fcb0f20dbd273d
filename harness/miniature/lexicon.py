"""The words that the corpus is made of: invented people and places, and the plain things around them."""

from random import Random

from harness.miniature.grammar import listed, pick

WOMEN = listed("""
    Mara, Elin, Tilda, Nora, Brenna, Ysolde, Petra, Hanne, Orla, Sunniva, Kestrel, Ada, Linnet, Rosalie,
    Imke, Freda, Carys, Maud, Thea, Willa, Juniper, Agnes, Ottilie, Vera, Marit, Delphine, Ingrid, Saffron,
    Edda, Winifred, Anneke, Bettina, Clara, Dagny, Esme, Flora, Greta, Hilda, Iris, Josephine, Katrin,
    Lotte, Minna, Nell, Olive, Pia, Ruth, Sigrid, Tess, Una, Viola, Yrsa, Zelda, Astrid, Beatrix, Cecily,
    Dora, Eudora, Fenna, Gerda
""")
MEN = listed("""
    Tom, Anders, Corin, Jonas, Piet, Osric, Hugo, Walter, Emil, Rufus, Dorian, Magnus, Felix, Barnaby,
    Odell, Silas, Edmund, Karel, Ivo, Matthias, Gideon, Arlo, Bruno, Leif, Tobias, Alwin, Casper, Ned,
    Rowan, Lambert, Abel, Bertram, Conrad, Dirk, Elias, Fritz, Gregor, Henrik, Ingram, Jasper, Klaus, Linus,
    Milo, Nils, Otto, Percy, Quentin, Ralf, Sven, Theo, Ulric, Viktor, Wendel, Yorick, Aldous, Basil,
    Cedric, Dunstan, Erland, Floyd
""")
FAMILIES = listed("""
    Fenwick, Alder, Thorne, Marlow, Quill, Harrow, Oakes, Pell, Winter, Sorrel, Brandt, Kettle, Lund, Vance,
    Hartley, Moss, Dray, Finch, Copper, Salter, Weaver, Rooke, Tanner, Loft, Greaves, Bell, Stone, Carver,
    Drum, Ashby, Penrose, Gill, Hawker, Lamb, Merrow, Nettle, Ogden, Pike, Rudd, Sparrow, Tull, Wade,
    Yarrow, Beck, Crane, Dove, Frost, Holt
""")
TOWNS = listed("""
    Millbrook, Harwick, Saltmere, Dunfell, Oxley, Fernhollow, Greywater, Pinecross, Wexham, Larkhill,
    Stonebridge, Eastmoor, Willowby, Ravenford, Coldharbour, Thistledown, Amberley, Kingsferry, Northlea,
    Hazelwick, Appledore, Brackwater, Cloverfield, Deepwell, Elmstead, Foxcombe, Goosegreen, Highgarth,
    Ironwell, Juniper Cross, Kestwick, Longbarrow, Marshgate, Netherby, Owlsworth, Plumstead, Quarrybank,
    Rushmere, Silverton, Tidewell, Underhill
""")
TITLES = {"woman": ("she", "her", "her"), "man": ("he", "him", "his")}

WORDS = {
    "town": TOWNS,
    "family": FAMILIES,
    "season": listed("spring, summer, autumn, winter"),
    "month": listed("""
        January, February, March, April, May, June, July, August, September, October, November, December
    """),
    "weekday": listed("Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday"),
    "hour": listed("dawn, breakfast, noon, midday, dusk, sunset, nightfall, midnight"),
    "some": listed("two, three, four, five, six, seven, eight, nine, ten, twelve"),
    "colour": listed("red, blue, green, yellow, grey, white, black, brown, silver, golden, purple, orange"),
    "wood": listed("oak, ash, pine, birch, walnut, cherry, elm, willow, cedar, maple"),
    "adj": listed("""
        old, small, dusty, bright, heavy, crooked, silent, broken, clean, cold, warm, strange, narrow,
        round, torn, empty, gentle, rusty, tall, soft, bitter, fine, wooden, painted, muddy, quiet, hollow,
        smooth, wild, faded, precious, plain, wet, sharp, hidden, friendly, famous, slow, thin, pale,
        ancient, shining, tiny, rough, curious, sleepy
    """),
    "object": listed("""
        key, ring, whistle, scarf, purse, bell, watch, lantern, map, knife, bottle, drum, comb, box, spoon,
        pen, button, book, kite, cup, hat, blanket, mirror, basket, coin, ladder, violin, letter, candle,
        glove, doll, hammer, kettle, chair, rope, stone, picture, shell, ribbon, lamp, clock, saw, pipe,
        jug, coat, flute, needle, plate, bucket, bag
    """),
    "keepsake": ("{adj} {object}", "{colour} {object}", "{wood} {object}"),
    "room": listed("""
        kitchen, attic, cellar, pantry, hallway, workshop, parlour, bedroom, stable, barn, loft, porch,
        courtyard, shed, dining room, store room, laundry, tower room, wine cellar, study
    """),
    "near": listed("""
        under, behind, beside, on, near, in front of, next to, inside, below, close to, on top of, against
    """),
    "furniture": listed("""
        bench, stove, well, ladder, window, gate, table, curtain, cupboard, wall, barrel, chest, fence,
        hedge, chimney, sink, door, pillar, wood pile, mattress, cart, hay, steps, bread bin, coal heap,
        writing desk, water trough, bookcase
    """),
    "spot": ("{near} the {furniture}", "{near} the {adj} {furniture}", "{near} the {furniture} of the {room}"),
    "place": listed("""
        market, mill, harbour, bakery, school, chapel, library, railway station, town hall, smithy, orchard,
        old bridge, lighthouse, quarry, ferry landing, inn, post office, village green, boat house,
        water tower, theatre, brewery, bath house, graveyard, tollgate, glass works, court house,
        salt store, fish market, toy shop, museum, hospital
    """),
    "wild": listed("""
        forest, moor, river, hills, marsh, lake, meadow, valley, coast, heath, dunes, canyon, cliffs,
        pine wood, island, bog, high pass, sea, gorge, salt flats
    """),
    "weather": listed("""
        rain, snow, fog, wind, sunshine, hail, sleet, frost, drizzle, thunder, heavy rain, warm wind,
        thick mist, wet snow, bitter cold, summer heat, black ice, light rain
    """),
    "cooked": listed("boiled, fried, roast, smoked, fresh, cold, stewed, baked, pickled, sweet, burned, hot"),
    "stuff": listed("""
        fish, mushrooms, turnips, eggs, pears, onions, beans, apples, plums, pumpkin, carrots, sausages,
        chestnuts, herring, beets, peas, leeks, trout, goose, ham, potatoes, cabbage, nuts, berries
    """),
    "dish": listed("""
        barley bread, pea soup, apple cake, plum jam, goat cheese, honey buns, lentil stew, oat porridge,
        berry pie, onion tart, ginger biscuits, corn pancakes, fish broth, rye toast, nut bread,
        rice pudding
    """),
    "food": ("{cooked} {stuff}", "{dish}", "{stuff} with {stuff}", "{cooked} {stuff} and {dish}"),
    "drink": listed("""
        mint tea, cold milk, cider, hot broth, plum juice, black coffee, ginger beer, well water, dark beer,
        lemon water, red wine, hot chocolate, sour milk, rose tea
    """),
    "goods": listed("""
        wool, barley, honey, salt, apples, onions, candles, rope, cheese, flour, timber, pears, wax,
        leather, eggs, herring, linen, oats, cabbages, soap, nails, butter, plums, potatoes, silk, coal,
        pepper, paper, ink, feathers, glass, tin, hay, vinegar, tea, garlic, bricks, chalk, copper wire,
        dried figs, fish hooks, goose fat, lamp oil, sugar
    """),
    "animal": listed("""
        dog, cat, goat, pony, donkey, hen, goose, crow, fox, hare, owl, otter, sheep, mule, duck, cow,
        badger, hedgehog, pig, squirrel, swan, mouse, turkey, parrot, lamb, toad, heron, ferret, wolf, raven
    """),
    "trade": listed("""
        baker, miller, smith, carpenter, teacher, ferryman, shepherd, potter, tailor, doctor, gardener,
        fisherman, weaver, clerk, innkeeper, beekeeper, mason, cook, saddler, printer, cooper, hatter,
        judge, sailor, painter, soldier, widow, pedlar, glazier, chemist, mayor, hunter, postman, farmer,
        captain, watchman, singer, midwife
    """),
    "relative": listed("""
        aunt, uncle, sister, brother, cousin, grandmother, grandfather, mother, father, neighbour,
        godmother, nephew, niece
    """),
    "feeling": listed("""
        glad, proud, tired, worried, curious, calm, nervous, grateful, surprised, sad, cheerful, lonely,
        hungry, angry, shy, hopeful, bored, jealous, ashamed, excited, afraid, content, sleepy, restless,
        thoughtful, patient, cold, happy
    """),
    "noise": listed("""
        crack, knock, whistle, splash, creak, shout, bang, laugh, rattle, scream, sigh, song, bark, roar
    """),
    "sound": (
        "a {loud} {noise}",
        "a {noise} from the {place}",
        "the {noise} of a {animal}",
        "a {noise} and then a {noise}",
        "the {noise} of the {object}",
    ),
    "loud": listed("loud, soft, long, short, strange, distant, sudden, faint, terrible, cheerful"),
    "tree": listed("""
        oak, chestnut, pear tree, willow, birch, lime tree, cherry tree, pine, walnut tree, elm, yew, beech
    """),
    "flower": listed("""
        roses, lavender, tulips, daisies, poppies, violets, lilies, thistles, bluebells, marigolds, asters,
        peonies, sunflowers, foxgloves, irises, crocuses
    """),
    "moved": listed("""
        waited, creaked, slept, burned, trembled, rolled, shone, hung, stood, leaned, turned, dripped,
        moved, fell, lay, rested
    """),
    "took": listed("""
        took, washed, moved, lifted, painted, carried, hid, sold, mended, opened, dropped, pushed, found,
        kept, forgot, bought, borrowed, touched, counted, cleaned, pulled, broke, watched, drew, covered,
        needed
    """),
    "how": listed("""
        slowly, quietly, at once, with care, in a hurry, without a word, twice, as usual, in the dark,
        with both hands, by mistake, on tiptoe, for nothing, in secret, with a smile, again, too late,
        little by little
    """),
    "said": listed("""
        said, answered, whispered, called, replied, muttered, cried, added, explained, sighed, shouted,
        laughed
    """),
    "when": listed("""
        at last, in the morning, after lunch, that night, the next day, an hour later, before long, at noon,
        in the evening, the whole day, at the same moment, a week later, every now and then, later on,
        for a while, towards evening
    """),
}

ROLES = {
    "a": "town",
    "b": "town",
    "goal": "town",
    "home": "town",
    "load": "goods",
    "machine": "engine",
    "need": "goods",
    "pet": "animal",
    "place1": "place",
    "present": "keepsake",
    "thing": "keepsake",
    "who": "person",
}
"""Names that stand for one and the same thing through a document, and the table that it comes from."""


def cast(random: Random) -> dict[str, str]:
    """Return the people of one document, by the slots that name them.

    `hero` has the pronouns `they`, `them` and `their`; `friend` has `they2`, `them2` and `their2`; `elder` has none.
    """
    people: dict[str, str] = {}
    for slot, mark in (("hero", ""), ("friend", "2"), ("elder", "3")):
        kind, names = ("woman", WOMEN) if random.random() < 0.5 else ("man", MEN)
        name = pick(names, random)
        while name in people.values():
            name = pick(names, random)
        people[slot] = name
        for pronoun, word in zip(("they", "them", "their"), TITLES[kind], strict=True):
            people[pronoun + mark] = word
    return people
