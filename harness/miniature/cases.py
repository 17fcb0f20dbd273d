"""What happens in the miniature's world: everyday routines, things that don't fit, and small studies."""

from harness.miniature.grammar import listed, tables
from harness.miniature.knowledge import Fit, Study

FITS = (
    Fit(
        "The {first} did not fit into the {second}",
        "was too large",
        "was too small",
        listed("kettle, lantern, violin, blanket, melon, hammer, teapot, clock"),
        listed("basket, drawer, box, bag, cupboard, trunk, crate, barrel"),
    ),
    Fit(
        "The {first} could not get through the {second}",
        "was too wide",
        "was too narrow",
        listed("cart, table, piano, wagon, sofa, barrel, chest, cow"),
        listed("gate, door, tunnel, lane, passage, arch, hallway, gap"),
    ),
    Fit(
        "The {first} broke through the {second}",
        "was too heavy",
        "was too thin",
        listed("stone, anvil, horse, bell, barrel, statue, wagon, stove"),
        listed("ice, floor, roof, shelf, plank, bridge, lid, table"),
    ),
    Fit(
        "The {first} could not reach the {second}",
        "was too short",
        "was too high",
        listed("ladder, boy, rope, pole, child, hook, broom, arm"),
        listed("shelf, branch, window, bell, roof, lamp, nest, hatch"),
    ),
    Fit(
        "The {first} caught the {second}",
        "was very fast",
        "was very slow",
        listed("fox, dog, wolf, hawk, cat, rider, ferret, owl"),
        listed("hen, rabbit, goose, thief, mouse, lamb, duck, snail"),
    ),
    Fit(
        "The {first} could not see the {second}",
        "was half blind",
        "was well hidden",
        listed("guard, hunter, captain, teacher, shepherd, judge, miller, queen"),
        listed("path, trap, island, treasure, spy, nest, deer, door"),
    ),
)

STUDIES = (
    Study("gardeners", "drank mint tea before bed", "drank plain water", "slept well", "Does mint tea help sleep?"),
    Study("bakers", "wore cotton gloves", "wore no gloves", "had sore hands", "Do cotton gloves cause sore hands?"),
    Study("pupils", "walked to school", "rode to school", "passed the test", "Does walking help with a test?"),
    Study("cows", "heard soft music", "heard no music", "gave more milk", "Does music lead to more milk?"),
    Study("hens", "ate crushed shells", "ate plain corn", "laid strong eggs", "Do crushed shells make eggs strong?"),
    Study("sailors", "ate lemons every day", "ate no lemons", "stayed healthy", "Do lemons keep sailors healthy?"),
    Study("weavers", "worked by the window", "worked by lamp light", "had headaches", "Does daylight cause headaches?"),
    Study("bean plants", "grew in ash", "grew in plain soil", "bore fruit early", "Does ash help beans to bear early?"),
    Study("old men", "swam in the lake", "stayed at home", "caught a cold", "Does swimming lead to colds?"),
    Study("sheep", "were shorn in March", "were shorn in June", "had lambs", "Does early shearing lead to more lambs?"),
    Study("clerks", "took a rest at noon", "worked without a rest", "made mistakes", "Does rest lead to mistakes?"),
    Study("children", "ate porridge", "ate white bread", "were awake in class", "Does porridge keep children awake?"),
    Study("bees", "lived in straw hives", "lived in wooden hives", "survived", "Do straw hives help bees to survive?"),
    Study("horses", "wore light shoes", "wore heavy shoes", "went lame", "Do light shoes make horses lame?"),
)

ROUTINES = tables("""
made tea:
  filled the kettle at the pump
  lit the stove
  waited until the water boiled
  poured it over the leaves
  drank it from a warm cup
baked bread:
  mixed flour and water
  kneaded the dough on the table
  let it rise under a cloth
  pushed it into the hot oven
  cut the first slice
washed the clothes:
  heated a tub of water
  rubbed them with soap
  rinsed them in the stream
  hung them on a line
  folded them in the evening
went fishing:
  dug for worms in the garden
  rowed out on the lake
  threw out the line
  pulled in a fat perch
  fried it over the fire
posted a letter:
  took a clean sheet of paper
  wrote the last line with care
  folded it into an envelope
  stuck a stamp on it
  dropped it into the box
planted a tree:
  dug a deep hole
  set the roots in it
  filled the hole with earth
  watered the ground well
  tied the trunk to a stake
shod the horse:
  led it to the smithy
  took off the old shoe
  heated the new one in the fire
  nailed it to the hoof
  rode home at a trot
painted the door:
  scraped off the old paint
  stirred the new paint in a bucket
  dipped the brush in it
  covered the wood from top to bottom
  hung up a sign that said wet
took the ferry:
  walked down to the landing
  bought a ticket from the boy
  found a seat on deck
  watched the shore go by
  stepped off on the other side
milked the cow:
  carried the stool to the barn
  washed the pail
  sat down beside the animal
  filled the pail to the rim
  brought the milk to the kitchen
went to bed:
  locked the front door
  climbed the stairs with a candle
  put on a long night shirt
  blew out the light
  slept until the morning
saw the doctor:
  knocked at the green door
  waited on a hard bench
  showed the sore throat
  got a bottle of brown syrup
  took a spoon of it at home
built a wall:
  stretched a string along the ground
  laid the biggest stones
  spread mortar on top of them
  set the next row
  brushed the finished wall clean
read a story:
  chose a book from the shelf
  sat down near the window
  opened it at the first page
  read until the last chapter
  put it back in its place
""")
"""Everyday doings, each with its steps in the one sensible order."""
