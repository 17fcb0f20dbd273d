"""Tables for the personal prose of the corpus: letters, diaries, lives and talk.

A form is a head, a bar and a row of beats; asides may come after the beats.
"""

from harness.miniature.grammar import tables

VOICES = tables("""
letter_doc:
  Dear {friend}, | l_start l_news l_news l_ask l_news l_plan l_ask l_end l_yours
  Dear {relative}, | l_start l_news l_plan l_news l_ask l_news l_end l_yours
l_start:
  thank you for your letter, which came on {weekday} with the {keepsake} inside.
  it is {season} in {town} now, and I think of you whenever I pass the {place}.
  I am sorry that I have not written since {month}, but there was so much to do at the {place}.
  I arrived in {town} on {weekday} after {some} days of {weather}.
l_news:
  You will be {feeling} to hear that {elder} is now a {trade} and lives near the {wild}.
  Our {animal} was lost for {some} days, and then we found it {spot}.
  Last {weekday} there was {sound} in the night, and no one slept.
  I have learned to make {food}, although the first one was burned.
  The {trade} has painted the {room} {colour}, and I do not like it at all.
  We had {weather} for {some} days, and the {wild} came up to the {place}.
  {Elder} has bought a {keepsake} for {#12-90} coins and shows it to everyone.
l_ask:
  How is your {relative}, and do you still have the {tree} behind the house?
  Could you send me some {goods}? Here it costs {#12-60} coins, and it is not good.
  Do you remember the {keepsake} that we hid {spot}? I wonder if it is still there.
  Is it true that the {place} in {town} has been closed?
l_plan:
  In {month} I want to come home for {some} days, if the road is open.
  Next {season} {elder} and I will go to {town} and look for work at the {place}.
  I am saving money for a {keepsake}, and I already have {#12-90} coins.
l_yours:
  Yours, {hero}
  With love, {hero}
  Your friend {hero}
  As ever, {hero} {family}
l_end:
  Please write soon, and keep warm.
  Now the lamp is going out, so I must stop.
  Give my best wishes to everyone at the {place}.
talk_doc:
  {k_place} | k_open k_reply k_turn k_reply2 k_turn k_more k_reply k_last
  {k_place} | k_open k_more k_reply2 k_turn k_reply k_more k_turn k_last
k_place:
  {Hero} and {friend} were sitting at the {place} of {town} on a {weekday} morning.
  It was {hour}, and {hero} met {friend} in front of the {place}.
  {Hero} the {trade} was selling {goods} when {friend} came in with a {keepsake}.
k_open:
  "Good morning," {said} {hero}. "Have you heard about the {trade} of {town}?"
  "You look {feeling}," {said} {hero}. "What has happened?"
  "Tell me," {said} {hero}, "what do you think of this {weather}?"
k_reply:
  "I have not," {said} {friend}, "but I can see that you are {feeling}."
  "It all began with a {keepsake}," {said} {friend}. "I found it {spot}."
  "My {relative} always said that {goods} and {weather} do not go together," {said} {friend}.
k_reply2:
  "That is strange," {said} {friend}. "I was at the {place} on {weekday}, and I saw nothing."
  "If I were you," {said} {friend}, "I would ask {elder}, the {trade}."
  "{Some} coins for that?" {said} {friend}. "In {town} you get it for {#2-9}."
k_turn:
  Just then there was {sound}, and they both looked at the door.
  {Hero} poured some {drink} and thought for a moment.
  A {animal} came in and lay down {spot}.
  {Friend} counted the {goods} in the basket, but {their2} mind was on something else.
k_more:
  "Yesterday," {hero} went on, "somebody left {some} sacks of {goods} in my {room}."
  "And what about the {food}?" asked {hero}. "You promised it to me in {month}."
  "Perhaps you are right," {said} {hero}, "but I will not go to the {wild} at night."
  "Then we will go together," {said} {hero}, "on {weekday}, when the road is dry."
k_last:
  They laughed, finished the {drink} and went their ways.
  "We will see," {said} {friend}, and with that they went back to work.
  When the bell rang at {hour}, they were still talking.
diary_doc:
  Diary of {hero} {family}, {trade} in {town}. | d_day d_one d_two d_day d_two d_one d_day d_one d_two
  Notes of a {trade}, {month} {#1-28}. | d_one d_two d_one d_three d_two d_one d_three d_two
d_day:
  {weekday}:
  {month} {#1-28}:
d_one:
  Up at {hour}. {Weather} over the {wild}, and no letters.
  Worked in the {room} until {hour} and finished the {goods}.
  {Friend} came by with {food}, and we talked about {elder}.
  Went to the {place} with {friend} to buy {goods} for {#3-60} coins.
  Found a {keepsake} {spot}. Nobody knows whose it is.
d_two:
  I was {feeling} all day and do not know why.
  In the evening we heard {sound}, but it was only the {animal}.
  {Elder} says that the {season} will be long, and {elder} is seldom wrong.
  I must remember to mend the {room} before the {weather} comes.
  Later I read {some} pages about the {wild} and fell asleep in the chair.
d_three:
  My {relative} wants me to give up the work at the {place}, but I like it too much.
  Counted the money: {#12-90} coins, which is {some} less than in {month}.
  Dreamed of a {colour} {animal} that lived in the {place} and spoke like {elder}.
life_doc:
  {Hero} {family} was born in {home} in {season}. | b_child b_child b_work b_work b_love b_late b_late b_end
b_child:
  At the age of {some}, {they} could already {skill}.
  {Their} {relative} was a {trade} and taught {them} to {skill}.
  As a child {they} spent every {season} by the {wild} with {friend}.
  {They} went to school in {town}, but {they} liked the {place} much better.
skill:
  ride a {animal}
  read the {weather}
  sell {goods}
  bake {food}
  mend a {keepsake}
  play {some} songs on a whistle
  find the way through the {wild}
b_work:
  For {#3-29} years {they} worked at the {place}, first for {elder} and later alone.
  Then {they} moved to {town} and became a {trade}, like {their} {relative}.
  {They} built the {place} of {home}, which still stands near the {wild}.
  People came from {town} and {town} to buy {their} {goods}.
b_love:
  In {month} {they} married {friend}, whom {they} had met at the {place}.
  {They} never married, but {they} had {some} friends and a {animal}.
b_late:
  In old age {they} grew {flower} and wrote letters to {elder}.
  {They} gave {their} {keepsake} to the {place}, where everyone can see it.
  Every {weekday} {they} walked to the {wild}, even in the {weather}.
b_end:
  {They} lived to be {#71-98} years old.
  A street in {home} is named after {them}.
""")
