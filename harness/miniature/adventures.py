"""Tables for the stories of the corpus: the beats that belong to one kind of adventure."""

from harness.miniature.grammar import tables

ADVENTURES = tables("""
errand:
  {Their} {relative} asked {them} to carry a sack of {load} to the {trade} in {goal}.
  There was no {need} left in the {room}, so {they} had to go to {goal} to buy some.
  A letter came from {goal}: {their} {relative} was ill and needed help at the {place}.
  {They} promised {elder} to bring a {keepsake} to {goal} before {hour}.
  It was {their} turn to take the {goods} to the market in {goal}.
road:
  The road to {goal} ran through the {wild} and over a narrow bridge.
  After {some} miles {they} rested {spot} and ate a piece of {food}.
  On the way {they} met a {trade} with {some} {colour} hats and a cart full of {goods}.
  The {weather} made the path slow, and {their} boots were soon heavy with mud.
  {They} passed the {place}, where the {trade} waved from a window.
  At the crossroads an old sign pointed left to {town} and right to {goal}.
  {Friend} came along as far as the {place} and told {them} about the {weather} of last {season}.
  In the {wild} it was quiet, and only a {animal} crossed the road.
hearing:
  Suddenly there was {sound}.
  Then they heard {sound}, and a moment later {sound}.
  From the {room} came {sound}, and {hero} stood still.
  "Did you hear that?" whispered {friend}. It was {sound}.
  A little later {sound} came from behind the {place}.
meeting:
  Near the {place} of {goal} stood {elder}, the {trade}, with {some} sacks of {goods}.
  In {goal} {they} found {elder} at the {place}, counting {goods}.
  A {trade} by the name of {elder} opened the door and asked {them} to come in.
  {Elder} was already waiting at the gate of {goal} with a {colour} lantern.
bargain:
  "{#12-90} coins for the {goods}," {said} {elder}. "{#3-11} coins," {said} {hero}, and in the end they agreed.
  {Elder} wanted {#12-90} coins, but {hero} had only {#2-11}, so {they} offered a {keepsake} as well.
  They traded a sack of {goods} for a barrel of {goods}, and both of them were {feeling}.
  {Hero} looked at every piece, paid {#12-90} coins and asked for nothing more.
kindness:
  {Elder} gave {them} a {keepsake} and would not take any money for it.
  "You must be tired," {said} {friend}. "Sit down, there is {drink} on the stove."
  Without a word, {friend} took the heaviest basket and carried it to the {place}.
  The {trade} lent them a lamp, a rope and a warm coat.
  {Elder} sat with {them} until {hour} and told {them} not to worry.
  Somebody had left {food} on the step, with a note that said: for {hero}.
road_home:
  The way back seemed shorter, although the {weather} had begun again.
  {They} walked home along the {wild} and sang all the songs that {they} knew.
  The ferryman took them across the water for {some} coins.
  By {hour} {they} could see the lights of {home} from the hill.
  {They} rode home on the cart of a {trade} who told one joke after another.
arrival:
  {Their} {relative} was standing at the door, {feeling} and with flour on both hands.
  When {they} came home, {friend} had lit the stove and swept the {room}.
  All of {home} came out to see what {hero} had brought.
  {They} put the bag on the table, and the {relative} nodded.
storm:
  In the afternoon the sky over {home} turned {colour}, and the {weather} began.
  Nobody had expected the {weather}, and the boats were still on the water.
  The {weather} came down from the {wild} so fast that {hero} had no time to close the {room}.
  First there was {weather}, then there was {weather}, and then the lights went out.
shelter:
  They ran to the {place} and pushed the door shut behind them.
  {Hero} took {friend} by the hand, and they hid in the {room} of the {place}.
  The nearest roof was the {place}, where {elder} had already lit a fire.
  {They} crept under the bridge with a {animal} and waited there.
wait:
  To pass the time, {friend} counted the {goods} in the {room}: there were {#13-98} of them.
  They played a game with {some} stones, and {hero} lost every time.
  An hour passed, and then another, and still they heard {sound}.
  {Hero} read aloud from a book about a {trade} and a {animal}.
  {Friend} fell asleep on a sack of {goods}.
calm:
  Towards {hour} it became quiet, and the sky cleared over the {wild}.
  At last the {weather} moved on in the direction of {town}.
  {Hero} opened the door and saw that the {weather} was over.
damage:
  The roof of the {place} was gone, but nobody was hurt.
  {Some} trees lay across the road, and the {room} was full of water.
  All the {goods} were wet, and the {animal} had run away.
  Only the old {tree} by the {place} still stood as before.
stranger:
  In the corner sat a stranger with a {colour} coat and a {keepsake} in {their2} lap.
  A {trade} from far away came in and asked for a glass of {drink}.
  The stranger wore {some} rings and spoke in a low voice.
tale:
  {Elder} told them about a {animal} that had once lived in the {place} and stolen {goods}.
  "When I was young," {said} {elder}, "the {wild} came right up to the {place}."
  {They} told a story about a {trade} who looked for a {keepsake} for {some} years.
  "My {relative} was a {trade} in {town}," {elder} began, "and never once saw the sea."
broken:
  On {weekday} the {machine} stopped, and nobody knew why.
  {Hero} pulled too hard, and a piece of the {machine} came off in {their} hand.
  The {machine} of the {place} had not worked since {month}.
engine:
  old pump
  church clock
  water wheel
  bread oven
  weaving loom
  printing press
  garden gate
  hand cart
  rowing boat
  music box
mend:
  {They} cleaned every part of the {machine} with a cloth and a little oil.
  {Friend} held the lamp while {hero} looked inside the {machine}.
  They took {some} screws out of the {machine} and laid them {spot}.
  From a piece of {wood} {they} carved a new handle for the {machine}.
  {Elder} lent them a hammer, and they worked on the {machine} until {hour}.
works:
  Slowly the {machine} began to move, and then it ran as smoothly as ever.
  "Now!" {said} {friend}, and the {machine} started with {sound}.
  In the end the {machine} was better than before.
arrived:
  In {month} a new {trade} called {elder} came to {home} with nothing but a {keepsake}.
  One evening {sound} made everyone look up, and a cart stopped in front of the {place}.
question:
  "Why did you come to {home}?" asked {hero}. "For the {flower}," was the answer.
  "How long will you stay?" asked {friend}. "Until the {season}," {said} {elder}, "or until the {goods} run out."
  "What is in the bag?" asked {hero}. It was a {keepsake}, wrapped in {colour} paper.
farewell:
  In {season} {elder} packed a bag, left the {keepsake} on the table and went away.
  At the {place} they said goodbye, and {elder} promised to write from {town}.
gift:
  It was {friend}'s birthday on {weekday}, and {hero} wanted to give {them2} a {present}.
  {Hero} had saved {#12-90} coins to buy a {present} for {friend}.
secret:
  For {some} days {hero} worked in the {room} with the door closed.
  {They} told nobody about it except {elder}, who could keep a secret.
  {They} hid it {spot} and hoped that no one would look there.
  Every night {they} went to the {place} and came back with {their} hands full of {colour} paint.
giving:
  When {friend} opened the parcel and saw the {present}, {they2} could not speak at first.
  "A {present}!" {said} {friend}. "How did you know?"
animal_in:
  One morning a {pet} stood in the {room} and would not go away.
  {Hero} found a small {pet} {spot}, wet and cold from the {weather}.
animal_does:
  The {pet} ate {some} pieces of {food} and fell asleep {spot}.
  The {pet} followed {hero} to the {place} and waited outside until {hour}.
  At night the {pet} heard {sound} and woke the whole house.
  The {pet} took the {keepsake} from the table and hid it {spot}.
  When {elder} came near, the {pet} ran into the {room}.
contest:
  Each {season} the people of {home} held a contest for the best {food}, and {hero} wanted to win.
  There was to be a race from the {place} to the {place}, with a {keepsake} as the prize.
contest_day:
  On the day itself the {place} was full, and {elder} was the judge.
  {Friend} was ahead for a while, but then came {sound}, and everyone turned around.
  The {trade} from {town} was the favourite and smiled at the crowd.
result:
  In the end {friend} won, and {hero} was the first to clap.
  {Hero} came second, behind a {trade} from {town}, and was {feeling} all the same.
  {Hero} won by a very little, and the prize was a {keepsake}.
""")
