# Commands that give the same output on every server. MORTAR_URL names it, MORTAR the program. IN_MEMORY is set if its bricks are in memory:
# these have no log that a cut could hold.

fail() { echo "line ${BASH_LINENO[1]}: $*" >&2; exit 1; }
is() { [[ $1 == "$2" ]] || fail "expected: $2; found: $1"; }
# exits CODE COMMAND... : the command ends with this code.
exits() {
    local code=0
    "${@:2}" >/dev/null 2>&1 || code=$?
    is "$code" "$1"
}

echo hello | "$MORTAR" put - /notes/hello
is "$("$MORTAR" get /notes/hello)" hello
exits 3 "$MORTAR" get /notes/missing
exits 4 "$MORTAR" put /dev/null /notes/hello --if-match 0123456789abcdef

# A file of several chunks, a part of it, and what is appended.
head -c 3000000 /dev/zero | tr '\0' 'a' >large
"$MORTAR" put large /large --attr colour=red
is "$("$MORTAR" get /large | cksum)" "$(cksum <large)"
is "$("$MORTAR" get /large --range -2)" aa
printf end | "$MORTAR" put - /large --append
is "$("$MORTAR" get /large --range 2999999-)" aend
"$MORTAR" attr set /large size big
is "$("$MORTAR" attr get /large colour)" red

# Names.
"$MORTAR" mv /notes /kept
is "$("$MORTAR" ls /kept)" /kept/hello
exits 3 "$MORTAR" ls /notes
"$MORTAR" collection create /both
"$MORTAR" collection add /both /large /kept/hello
is "$("$MORTAR" collection ls /both | wc -l)" 2
"$MORTAR" rm /kept/hello
exits 3 "$MORTAR" stat /kept/hello
is "$("$MORTAR" collection ls /both | wc -l)" 1

# A tree of files, there and back.
mkdir -p tree/below/empty
for number in $(seq 60); do echo "$number" >"tree/below/$number"; done
"$MORTAR" import tree
"$MORTAR" verify tree
"$MORTAR" export again --prefix /tree
diff -r tree again
echo changed >tree/below/7
exits 4 "$MORTAR" verify tree
"$MORTAR" import tree
"$MORTAR" verify tree
"$MORTAR" rm -r /tree
exits 3 "$MORTAR" stat /tree

# Classes, objects and queries.
"$MORTAR" class define Person --field name:string --field age:int64
for age in 30 40 50; do "$MORTAR" object put --class Person "{\"name\": \"p$age\", \"age\": $age}"; done
is "$("$MORTAR" query Person 'select name where age >= 40 order by age' --json | tr -d '\n')" '{"name":"p40"}{"name":"p50"}'
"$MORTAR" index create by_age --class Person --field age
is "$("$MORTAR" query Person 'select count(*) where age == 50' --json)" '{"count(*)":1}'
"$MORTAR" class evolve Person --add 'email:string?'
"$MORTAR" evolve Person
is "$("$MORTAR" query Person 'select count(*) where email == null' --json)" '{"count(*)":3}'

# A name is not its object.
"$MORTAR" name bind /alias /large
is "$("$MORTAR" name resolve /alias)" "$("$MORTAR" name resolve /large)"
"$MORTAR" name unbind /alias
exits 3 "$MORTAR" name resolve /alias
"$MORTAR" attr rm /large size
exits 3 "$MORTAR" attr get /large size

# What runs in the background, a copy of the space, and its limits.
"$MORTAR" scrub --references
"$MORTAR" scrub --repair
is "$("$MORTAR" job ls --json | grep -c '"kind":"scrub"')" 1
if [[ -z ${IN_MEMORY-} ]]; then
    "$MORTAR" space clone main then
    is "$("$MORTAR" --space then get /large --range -3)" end
    exits 9 "$MORTAR" --space then rm /large
    "$MORTAR" space rm then --yes
fi
"$MORTAR" space set main --max-objects 1
exits 7 "$MORTAR" put /dev/null /one-more
"$MORTAR" space set main --max-objects none
"$MORTAR" space set main --read-only true
exits 9 "$MORTAR" put /dev/null /one-more
"$MORTAR" space set main --read-only false

# A backup, what has changed since, and a store of both.
if [[ -z ${IN_MEMORY-} ]]; then
    "$MORTAR" backup archive
    echo later | "$MORTAR" put - /later
    "$MORTAR" backup increment --since archive
    "$MORTAR" restore archive increment --data restored
    "$MORTAR" repair --data restored
    exits 3 "$MORTAR" restore archive missing --data other
    "$MORTAR" rm /later
fi

# Everything is well, and a space can be made and removed.
"$MORTAR" scrub
"$MORTAR" space create aside
"$MORTAR" space rm aside
exits 3 "$MORTAR" space rm aside
"$MORTAR" rm -r /kept /large /both
exits 3 "$MORTAR" stat /large

# With the first user, a server admits nobody else.
MORTAR_NEW_PASSWORD="correct horse" "$MORTAR" user add ann
exits 9 "$MORTAR" ls
export MORTAR_USER=ann MORTAR_PASSWORD="correct horse"
MORTAR_NEW_PASSWORD="battery staple" "$MORTAR" user add bob
is "$("$MORTAR" user list --json | wc -l)" 2
"$MORTAR" space grant main read --to-user bob
export MORTAR_USER=bob MORTAR_PASSWORD="battery staple"
"$MORTAR" ls
exits 9 "$MORTAR" put /dev/null /new
exits 9 "$MORTAR" user list
