"""Tables for the stories of the corpus: plots as rows of beats, and the sentences of each beat.

A plot is a row of beats; sentences of plain texture may come between them.
"""

from harness.miniature.grammar import tables

STORIES = tables("""
story:
  opening lost asking search search setback helper search found thanks meal closing
  opening lost feelings asking search hearing helper found explain thanks closing
  opening errand road road hearing meeting bargain meal road_home arrival closing
  opening errand feelings road setback meeting kindness road_home arrival thanks closing
  opening storm feelings hearing shelter wait wait kindness calm damage closing
  opening storm road shelter stranger meal tale wait calm road_home closing
  opening broken feelings mend setback helper mend works thanks meal closing
  opening broken asking mend mend setback kindness works tale closing
  opening arrived stranger feelings tale meal question kindness wait farewell closing
  opening gift feelings secret secret hearing helper giving thanks meal closing
  opening animal_in feelings animal_does asking animal_does kindness animal_does thanks closing
  opening contest feelings secret helper contest_day contest_day result thanks meal closing
texture:
  The {adj} {object} {moved} {spot}.
  {When} the {object} of the {trade} {moved} {spot}, {adj} and {adj}.
  {Hero} {took} the {adj} {object} and {took} the {furniture} {how}.
  {Friend} thought of the {adj} {object} that {they2} once {took} in {town}.
  {Friend} {took} a {adj} {object} {how} and {took} it {when}.
  Somewhere behind the {place} a {adj} {animal} {moved}.
  "The {object} is {adj}," {said} {elder}, "but the {object} is {adj}."
  "My {relative} {took} a {object} like that," {said} {friend}, "and was {feeling} about it."
  {Elder} had {adj} hands, a {colour} coat and a voice like a {adj} {object}.
  It smelled of {goods}, {goods} and {adj} {wood} wood.
  {When} {they} {took} {some} sacks of {goods} {how}.
  {Hero} saw a {colour} {object}, a {adj} {animal} and {some} {colour} {flower} {spot}.
  {When} {hero} was {feeling}, and {friend} was {feeling} and {feeling}.
  A {trade} with a {adj} {object} came from the {wild} and {took} the {furniture} {how}.
  The {animal} {took} the {stuff}, and the {animal} {took} the {adj} {object}.
  In the distance the {place} looked {adj} and {adj}, like a {object} made of {goods}.
opening:
  On a {weekday} in {season}, {hero} {family} woke before {hour} and looked out over the roofs of {home}.
  {Hero} lived with {their} {relative} in a small {wood} house at the edge of {home}.
  In the town of {home} there was a {trade} named {hero} who was always {feeling}.
  It had been a long {season} in {home}, and {hero} was {feeling} from the first day to the last.
  {Hero} and {friend} had been friends since they were children in {home}.
  There was once a young {trade} in {home} whose name was {hero} {family}.
  Every {weekday}, {hero} walked from the {place} to the {place} and back again.
  When {hero} was {some} years old, the {family} family moved to {home}, close to the {wild}.
  The {season} fair had just ended in {home}, and {hero} was sweeping the floor of the {room}.
  {Hero} had worked at the {place} in {home} for {some} years, first as a {trade} and then as a {trade}.
  Nobody in {home} got up earlier than {hero}, the {trade} who lived near the {wild}.
  One {season} evening {hero} sat in the {room} with {friend} and listened to the {weather}.
lost:
  That day {they} could not find the {thing} that {their} {relative} had given {them}.
  {They} put a hand in {their} pocket and felt that the {thing} was gone.
  The {thing}, which always lay on the shelf in the {room}, had disappeared.
  At noon {they} noticed that somebody had taken the {thing} from the {room}.
  "Where is my {thing}?" asked {hero}, but nobody in the {room} could say.
  {They} opened the box for the {thing} and found nothing in it but dust.
feelings:
  {Hero} was {feeling}, but {friend} was only {feeling}.
  {They} felt {feeling} and could not say why.
  {Friend} saw that {hero} was {feeling} and said nothing.
  "I am {feeling}," {said} {hero}, "and a little {feeling} too."
  It made {them} {feeling}, as it always did when there was {weather}.
asking:
  {They} asked {friend}, who had been in the {room} all morning, but {friend} only shook {their2} head.
  "Have you been to the {place1}?" asked {friend}. "I saw {elder} there with something in a bag."
  First {they} went to the {trade}, then to the {trade}, but neither of them knew anything.
  Old {elder} at the {place} told {them} to be patient and to look twice in every corner.
  {Friend} promised to help as soon as the work at the {place} was done.
  The {trade} said that {elder} would know, because {elder} knew everything that happened in {home}.
  "Think about where you were yesterday," {said} {friend}, and {hero} thought about it for a long time.
search:
  They looked {spot}, and {spot}, but there was nothing.
  Then {they} searched the {room} from the floor to the ceiling.
  {Friend} climbed up to the {room} and moved every box.
  They walked slowly along the road to the {place1} with their eyes on the ground.
  {Hero} took a lamp and looked {spot}.
  Together they emptied the {room}, but they found only a {keepsake} that belonged to {elder}.
  In the afternoon {they} went back to the {place1} and asked everyone there.
  {They} even looked {spot}, where a {animal} was sleeping.
setback:
  Then the {weather} came, and they had to stop for an hour.
  Just then {friend} slipped on the wet stones and hurt {their2} hand.
  By {hour} {hero} was so {feeling} that {they} sat down on a bench and did not speak.
  But the door of the {place} was locked, and the {trade} had gone home with the key.
  It grew dark, and the lamp had almost no oil left.
  The work was harder than it looked, and the first attempt failed.
  A cart stood across the road, and nobody could pass until {hour}.
helper:
  At last {elder} came by and asked what the trouble was.
  {Friend} had a better idea and ran to the {place} to fetch a {keepsake}.
  A {animal} came out of the {room} and began to sniff at the door.
  "Let me try," {said} {elder}, who had been a {trade} for {#20-60} years.
  The {trade} from {town} stopped {their} cart and offered to help.
  Then {friend} remembered what {elder} had said about the {place1}.
  A child from the {family} house pulled at {their} sleeve and pointed to the {place}.
found:
  And there, {spot}, lay the {thing}, covered with dust but not broken.
  "Here it is!" cried {friend}, and held up the {thing}.
  {Hero} lifted a board, and under it was the {thing}.
  The {thing} had been {spot} all the time.
  It was {elder} who found the {thing} at last, {spot}.
  Something shone {spot}. It was the {thing}.
explain:
  "I borrowed it on {weekday}," {said} {elder}, "and I forgot to bring it back."
  The {animal} must have carried it there in the night, they decided.
  It had fallen through a hole in {their} pocket on the way to the {place}.
  {Their} {relative} had put it away to keep it safe and had told nobody.
  {Elder} laughed and said that lost things are always in the last place.
thanks:
  {Hero} thanked {friend} {some} times and gave {them2} a basket of {goods}.
  "I will not forget this," {said} {hero}, and {they} never did.
  {They} shook hands with {elder} and wiped {their} eyes.
  To say thank you, {hero} baked {food} for the whole street.
  {Friend} was {feeling} and only said that anyone would have done the same.
  "It was nothing," {said} {elder}, but everyone could see that {elder} was {feeling}.
meal:
  That evening they ate {food} and {food}, and drank {drink} by the fire.
  They sat down in the {room} and shared some {food} and a jug of {drink}.
  {Elder} put {food} on the table, and there was {drink} for everyone.
  There was only {food} left, but they were hungry and it tasted very good.
  {Friend} brought {drink} from the {place}, and they talked until {hour}.
closing:
  From that day on, {hero} kept a {keepsake} {spot}, just in case.
  When {hero} went to bed, the {weather} had stopped and the stars were out.
  People in {home} still tell this story when the {season} evenings are long.
  {Hero} and {friend} walked home slowly and said very little.
  It was the best day of the whole {season}.
  After that, {hero} never again laughed at the {trade}.
  And the next morning everything in {home} was as it had always been.
  {Hero} wrote it all down in a small {colour} book, which is now in the {place} of {home}.
  "Tomorrow," {said} {hero}, "we will do something quite different."
  Then {they} closed the {room} door, put out the lamp and slept until {hour}.
""")
