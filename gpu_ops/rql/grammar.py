"""What queries look like: the grammar from which Lark makes the parser's tables.

A word in quotes is a word of the language; whether a word in a text is meant so, or is a name, `lexer.py` decides by
what may stand there. Names in capitals are tokens that keep their text (`lexer.TOKENS`).
"""

from __future__ import annotations

GRAMMAR = r"""
%declare NAME NUMBER STRING UNIT LITERAL DIRECTION NOT SIDE BEST SET
%declare STAR PLUS MINUS DIVIDE COMPARE JOINED WITHUPDATE ROWSTATUS DIFF

start: query ";"?
query: select further* order limit
further: SET quantity_all select
quantity_all: "all" -> yes | -> no
select: "select" first distinct item ("," item)* "from" source where groups having
first: ("first" NUMBER)?
distinct: "distinct" -> yes | "all" -> no | -> no
item: (STAR | expression) alias
    | NAME "." STAR                                              -> all_of
alias: ("as"? NAME)?

?source: table joined*                                           -> tables
       | alert
joined: "," table                                                -> comma_join
      | "inner"? "join" table "on" expression                    -> inner_join
      | SIDE "outer"? "join" table "on" expression               -> outer_join
table: NAME chain named                                          -> stream_table
     | NAME alias                                                -> plain_table
     | "self" "#" NAME named                                     -> self_table
     | "(" query ")" alias                                       -> query_table
named: "as"? NAME
chain: part ("to" part)*
part: "(" "partition" by "store" pick provider aggregates where ")"
by: ("by" (NAME ("," NAME)*)?)?
pick: "last" NUMBER                                              -> last
    | "last" NUMBER UNIT most                                    -> span
    | "latest" NUMBER                                            -> latest
    | "random" NUMBER                                            -> random
    | BEST NUMBER "using" NAME update                            -> best
most: ("max" NUMBER)?
update: (WITHUPDATE NAME ("," NAME)*)?
provider: STRING?
aggregates: ("with" pinned aggregate ("," aggregate)*)?
pinned: "pinned" -> yes | -> no
aggregate: NAME "(" NAME diff ")" entrance named
         | "custom" "(" NAME ("," expression)* ")" entrance named -> custom
diff: (DIFF STRING?)?
entrance: "entrance" "only" -> yes | -> no

alert: "alert" projected ("," projected)* "using" correlated ("," correlated)* "when" present ("or" present)*
projected: NAME "." NAME named
correlated: NAME chain named "correlate" "on" NAME
present: "present" "(" wanted ("and" wanted)* ")"
wanted: NOT? NAME

where: ("where" expression)?
groups: ("group" "by" expression ("," expression)*)?
having: ("having" expression)?
order: ("order" "by" key ("," key)*)?
key: expression DIRECTION? nulls
nulls: "nulls" "first" -> yes | "nulls" "last" -> no | -> no_clause
limit: ("limit" NUMBER offset)?
offset: ("offset" NUMBER)?

// Expressions, the loosest first

?expression: conjunction | expression "or" conjunction           -> either
?conjunction: negation | conjunction "and" negation              -> both
?negation: comparison | NOT negation                             -> unary
?comparison: joined_text
           | comparison COMPARE joined_text                      -> binary
           | comparison "is" negated "null"                      -> null_test
           | comparison negated "in" values                      -> within
           | comparison negated "like" joined_text escape        -> alike
           | comparison negated "between" joined_text "and" joined_text -> between
           | "exists" "(" query ")"                              -> exists
           | ROWSTATUS "is" status                               -> row_status
           | NAME "." ROWSTATUS "is" status                      -> row_status
status: "new" -> status_new | "dead" -> status_dead | NOT "dead" -> status_not_dead
negated: NOT?
escape: ("escape" STRING)?
values: "(" expression ("," expression)* ")" | "(" query ")"     -> query_values
?joined_text: sum | joined_text JOINED sum                       -> binary
?sum: product | sum _sign product                                -> binary
_sign: PLUS | MINUS
?product: signed | product _times signed                         -> binary
_times: STAR | DIVIDE
?signed: atom | _sign signed                                     -> unary
?atom: NAME                                                      -> name
     | NAME "." NAME                                             -> qualified
     | NAME "(" arguments ")"                                    -> call
     | NUMBER                                                    -> number
     | STRING                                                    -> string
     | LITERAL                                                   -> constant
     | "null"                                                    -> null
     | "(" expression ")"                                        -> parenthesised
     | "(" query ")"                                             -> scalar
     | "case" when_then+ otherwise "end"                         -> case
     | "case" expression when_then+ otherwise "end"              -> case_of
when_then: "when" expression "then" expression
otherwise: ("else" expression)?
arguments: | STAR | call_quantity expression ("," expression)*
call_quantity: "distinct" -> yes | "all" -> no | -> no
"""
