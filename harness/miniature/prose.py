"""Tables for the plain prose of the corpus: reports, descriptions and journeys.

A form is a head, a bar and a row of beats; asides may come after the beats.
"""

from harness.miniature.grammar import tables

PROSE = tables("""
prose:
  weather_doc
  market_doc
  travel_doc
  house_doc
  letter_doc
  talk_doc
  diary_doc
  life_doc
  town_doc
  letter_doc
  talk_doc
  diary_doc
aside:
  There was a {adj} {object} {spot}.
  A {trade} {took} the {adj} {object} {how}.
  The {object} of the {trade} was {adj} and {adj}.
  {When} a {adj} {animal} {took} the {object} {spot}.
  Somebody {took} {some} plates of {food} {how}.
  One {trade} {took} the {goods}, the other {took} the {goods}.
  The {furniture} in the {room} was {adj}, and the {furniture} was {colour}.
  {When} the {trade} {took} a {object} and {some} pounds of {goods}.
  Nobody {took} the {adj} {object} with the {colour} {flower}.
  The {trade} was {feeling}, the {trade} was {feeling}, and the {animal} {moved} {spot}.
  It was a {adj} {weekday}, {adj} and full of {weather}.
  Two brothers {took} a {adj} {object} from {town} {how}.
weather_doc:
  Weather for {weekday} in {home}. | w_morning w_wind w_noon w_wild w_evening w_warn w_week w_past
  The weather in {home}, {month} {#1-28}. | w_past w_morning w_noon w_wild w_wind w_week w_warn w_next
w_morning:
  The morning begins with {weather} over the {wild}, but towards {hour} it will be dry.
  Expect {weather} until {hour}, and after that a little {weather} from the {side}.
  It will be cold at first, about {#2-9} degrees, with {weather} in low places near the {wild}.
  Early in the day there may be {weather}, and drivers on the road to {town} should take care.
w_wind:
  The wind blows from the {side} at {#5-40} miles an hour and grows weaker after {hour}.
  There is hardly any wind, and the smoke of the {place} rises straight up.
  Strong wind from the {side} will reach the {wild} first and {town} a few hours later.
w_noon:
  At noon it will be {#10-29} degrees in {home} and {#5-19} degrees in {town}.
  By noon the sun should come out, and people at the {place} can leave their coats at home.
  Around midday some {weather} is possible, most of all near the {place}.
w_wild:
  In the {wild} the ground is still wet, and the path from {town} to {town} is closed.
  On the {wild} the water is {#4-19} degrees, which is too cold for swimming.
  Shepherds on the {wild} should bring in their animals before {hour}.
w_evening:
  In the evening {weather} moves in from the {side}, and the night will be {night}.
  After {hour} the sky clears, and the night will be {night}.
night:
  cold and still
  mild and cloudy
  dark and stormy
  clear, with many stars
  warm for {month}
w_warn:
  The {trade} of {home} asks everyone to keep {goods} and {goods} under a roof.
  Ships should stay in the harbour until {weekday}.
  The ferry to {town} does not run on {weekday}.
  No damage is expected, but old roofs should be checked.
w_week:
  For the rest of the week it stays {night}.
  On {weekday} it will be better, and on {weekday} there may even be sunshine.
  {Weekday} brings {weather}, {weekday} brings {weather}, and after that nobody can say.
w_past:
  Last {season} was the wettest for {#12-90} years, and the {wild} rose by {some} feet.
  Yesterday {#2-29} inches of {weather} fell in {town}, more than in the whole of {month}.
  Old {hero} at the {place}, who has kept a record for {#12-60} years, says that the {season} will be short.
w_next:
  The next report will be read at the {place} at {hour}.
  This report was made by {hero} {family}, {trade} at the {place} of {home}.
side:
  north
  south
  east
  west
market_doc:
  Market report from {home}, {weekday}. | m_crowd m_price m_price m_why m_price m_talk m_new m_end
  The {season} market in {home}. | m_crowd m_new m_price m_price m_talk m_price m_why m_event m_end
m_crowd:
  The market opened at {hour}, and by {hour} there was no room left between the stalls.
  Only {#12-60} stalls were open because of the {weather}, but they were busy all day.
  Buyers came from {town}, {town} and {town}, and most of them wanted {goods}.
m_price:
  {Goods} cost {#3-48} coins a sack, {some} more than last {weekday}.
  A basket of {goods} was sold for {#3-48} coins, and {goods} went for {#3-48}.
  The price of {goods} fell to {#3-20} coins, while {goods} stayed at {#21-60}.
  Good {goods} were hard to find, and people paid up to {#30-95} coins for them.
m_why:
  The {trade} blamed the {weather}; others said that too much came from {town}.
  After a poor {season} in the {wild}, most farmers had little to sell.
  The road to {town} is open again, so more {goods} can be brought in.
m_talk:
  "I have never seen so much {goods} in {month}," {said} {hero} {family}, who has a stall near the {place}.
  {Hero} the {trade} bought {some} sacks at once and would not say why.
  "People buy with their eyes," {said} {friend}, and put the {colour} ones in front.
m_new:
  New this week: {hero} {family} from {town} sells {food}, warm from the oven.
  A {trade} showed a {keepsake} that is said to be {#100-900} years old.
  There was also {drink} for the children, and a {animal} that could count to {some}.
m_event:
  At {hour} a {animal} ran between the tables and upset a barrel of {goods}.
  At {hour} there was {sound}, and everyone looked up, but nothing more happened.
m_end:
  The next market is on {weekday}, if the {weather} allows it.
  By {hour} the stalls were empty, and the {place} was quiet again.
  The clerk counted {#100-900} visitors, {some} carts and one lost {animal}.
travel_doc:
  From {a} to {b}. | t_start t_way t_see t_way t_food t_see t_sleep t_tip t_end
  A journey to {b}. | t_start t_way t_way t_food t_meet t_see t_sleep t_see t_end
t_start:
  The road begins at the {place} in {a} and follows the {wild} for {#3-19} miles.
  We left {a} on a {weekday} in {month}, with {some} bags and a {keepsake}.
  A boat goes from {a} every {weekday} at {hour} and costs {#2-19} coins.
t_way:
  After the {place} the path turns {side} and climbs through the {wild}.
  For {some} hours there was nothing to see but {weather}.
  Then comes a long bridge of {wood} wood, built by a {trade} {#12-90} years ago.
  Do not take the left road, which ends at the {place}.
  We lost our way near the {wild}, and a {trade} with a {animal} showed us where to go.
t_see:
  The finest thing in {b} is the {place}, with its {colour} doors and {flower} in every window.
  On the hill stands a {place} where a {trade} still works as people did in the old days.
  Visitors may climb the tower of the {place} and look out over the {wild}.
  In the library of {b} lies a {keepsake} that once belonged to {hero} {family}.
t_food:
  At the inn we had {food} with {drink} for {#2-19} coins.
  Travellers should try the {food}, which is better here than in {town}.
t_meet:
  A {trade} called {hero} told us about the {season} when the {wild} froze.
  On the ferry we met {hero} and {friend}, who were on their way to a wedding in {town}.
t_sleep:
  There are {some} beds at the {place}, and the {room} is warm and clean.
  We slept in a {room} and woke up to {sound}.
t_tip:
  Bring a warm coat, for the {weather} comes quickly in {month}.
  It is best to go in {season}, when the {flower} are out and the road is dry.
t_end:
  We were {feeling} when we saw {a} again.
  In all it is a journey of {some} days, and nobody regrets it.
  If you go there, say hello to the {trade} from us.
house_doc:
  The house of {hero} {family} in {town}. | h_out h_out h_in h_in h_thing h_in h_life h_life h_end
  The old {place} of {town}. | h_out h_in h_thing h_thing h_in h_out h_life h_life h_end
h_out:
  It stands between a {tree} and a {tree}, a short walk from the {wild}.
  The walls are {colour}, the door is {colour}, and {flower} grow under the windows.
  From the road one sees only the roof, which was mended in {season} by a {trade} from {town}.
  In front there is a small garden with {flower}, {flower} and a bench of {wood}.
h_in:
  Through the {room} one comes into a long room with {some} windows and a {wood} table.
  The {room} smells of {goods} and {goods}.
  In the {room} it is always cool, even in {month}.
  A narrow stair leads up to the {room}, where {friend} sleeps among books and {goods}.
  Next to the stove stands a chair in which only the {animal} is allowed to sit.
h_thing:
  Over the door hangs a {keepsake}, and nobody remembers who put it there.
  The {keepsake} on the shelf was a present from {elder}, who was a {trade} in {town}.
  There is a picture of a {animal} in the {wild}, painted by {hero} at the age of {some}.
h_life:
  Every {weekday} the neighbours come for {food} and {drink}.
  At {hour} you can hear {sound}, and then it is quiet again.
  When there is {weather}, the whole family sits in the {room} and tells stories.
  In {season} the windows stay open, and the {animal} walks in and out.
h_end:
  {Hero} says that no house in {town} is half as good.
  It was sold once for {#200-900} coins, and bought back {some} years later.
  Nobody wants to leave it, and those who do soon come back.
town_doc:
  {Home} lies between the {wild} and the {wild}. | v_one v_two v_one v_two v_one v_two v_two v_end
v_one:
  About {#200-900} people live there, and most of them work with {goods} or {goods}.
  The oldest building is the {place}, which has {some} {colour} windows.
  In the middle of the town grows a {tree} that is {#100-400} years old.
  The houses are built of {wood} and painted {colour}, {colour} or {colour}.
  A road leads to {town}, which is {#3-29} miles away.
v_two:
  Once a year, in {month}, the people dance in front of the {place} and eat {food}.
  Children there learn early to look after a {animal}.
  In {season} there is much {weather}, and then everyone stays at home.
  The best known person is {hero} {family}, a {trade} who makes {goods} and tells long stories.
  It is said that under the {place} lies a {keepsake} that no one has ever seen.
  On {weekday} the market sells {goods}, {goods} and {food}.
v_end:
  Those who were born in {home} seldom leave.
  It is a quiet place, and people like it that way.
""")
