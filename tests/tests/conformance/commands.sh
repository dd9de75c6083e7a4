# Commands that give the same output on every server. MORTAR_URL names it, MORTAR the program.

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

# Everything is well, and a space can be made and removed.
"$MORTAR" scrub
"$MORTAR" space create aside
"$MORTAR" space rm aside
exits 3 "$MORTAR" space rm aside
"$MORTAR" rm -r /kept /large /both
exits 3 "$MORTAR" stat /large
