#!/usr/bin/env escript
%% Plays scenarios of groups on pooler: one request a line of the standard input, one answer a line of the standard
%% output. The argument is the directory of pooler's compiled modules.
%%
%%   reset                           pooler without pools; the holders are gone
%%   pool NAME GROUP INIT MAX KIND   a pool; its starts are well, broken, or take a number of ms
%%   regroup NAME GROUP INIT MAX KIND   the same pool in another group
%%   rmpool NAME, rmgroup GROUP
%%   take HOLDER GROUP               the pool of the member, or none
%%   takeof HOLDER NAME              the same, from one pool
%%   return HOLDER ok|fail           the holder's oldest member
%%   lose HOLDER                     the process of the holder ends
%%   kill HOLDER                     the process of the holder's oldest member ends; the holder forgets it
%%   holds HOLDER                    the number of its members that are alive
%%   figures GROUP                   sums over its pools: in use, free, starting, stopping
-module(pooler_groups).
-mode(compile).
-export([main/1, start_member/2]).

main([Beams]) ->
    logger:remove_handler(default),
    true = code:add_patha(Beams),
    {ok, _} = pg:start(pg),
    loop(#{}).

loop(Holders) ->
    case io:get_line("") of
        eof ->
            ok;
        Line ->
            {Answer, Next} = play(string:lexemes(Line, " \n"), Holders),
            io:format("~s~n", [Answer]),
            loop(Next)
    end.

play(["reset"], Holders) ->
    [exit(Pid, kill) || Pid <- maps:values(Holders)],
    _ = application:stop(pooler),
    ok = pooler:start(),
    {"ok", #{}};
play(["pool" | Words], Holders) ->
    {ok, _} = pooler:new_pool(config(Words)),
    {"ok", Holders};
play(["regroup", Name | _] = [_ | Words], Holders) ->
    {ok, _} = pooler:pool_reconfigure(list_to_atom(Name), config(Words)),
    {"ok", Holders};
play(["rmpool", Name], Holders) ->
    ok = pooler:rm_pool(list_to_atom(Name)),
    {"ok", Holders};
play(["rmgroup", Group], Holders) ->
    ok = pooler:rm_group(list_to_atom(Group)),
    {"ok", Holders};
play(["take", Holder, Group], Holders) ->
    Take = fun() -> pooler:take_group_member(list_to_atom(Group)) end,
    Return = fun(Pid, Condition) -> pooler:return_group_member(list_to_atom(Group), Pid, Condition) end,
    ask(Holder, {take, Take, Return}, Holders);
play(["takeof", Holder, Name], Holders) ->
    Take = fun() -> pooler:take_member(list_to_atom(Name)) end,
    Return = fun(Pid, Condition) -> pooler:return_member(list_to_atom(Name), Pid, Condition) end,
    ask(Holder, {take, Take, Return}, Holders);
play(["return", Holder, Condition], Holders) ->
    ask(Holder, {return, list_to_atom(Condition)}, Holders);
play(["lose", Holder], Holders) ->
    exit(maps:get(Holder, Holders), kill),
    {"ok", maps:remove(Holder, Holders)};
play(["kill", Holder], Holders) ->
    ask(Holder, kill, Holders);
play(["holds", Holder], Holders) ->
    ask(Holder, holds, Holders);
play(["figures", Group], Holders) ->
    All = [pooler:pool_utilization(Pid) || Pid <- pooler:group_pools(list_to_atom(Group))],
    Keys = [in_use_count, free_count, starting_count, stopping_count],
    Sums = [lists:sum([proplists:get_value(Key, One) || One <- All]) || Key <- Keys],
    {lists:join(" ", [integer_to_list(Sum) || Sum <- Sums]), Holders}.

config([Name, Group, Init, Max, Kind]) ->
    #{
        name => list_to_atom(Name),
        group => list_to_atom(Group),
        init_count => list_to_integer(Init),
        max_count => list_to_integer(Max),
        start_mfa => {?MODULE, start_member, [Name, Kind]}
    }.

%% Members are processes that know their pool.
start_member(_, "broken") ->
    {error, broken};
start_member(Name, Kind) ->
    Kind =:= "well" orelse timer:sleep(list_to_integer(Kind)),
    {ok, spawn_link(fun() -> put(pool, Name), receive never -> ok end end)}.

%% Sends a request to a holder, and returns its answer. A holder is a process, which is made when it is first named.
ask(Holder, Request, Holders) ->
    Pid = maps:get(Holder, Holders, none),
    Asked = case Pid of none -> spawn(fun() -> hold([]) end); _ -> Pid end,
    Asked ! {self(), Request},
    receive {Asked, Answer} -> {Answer, Holders#{Holder => Asked}} end.

hold(Members) ->
    receive
        {From, Request} ->
            {Answer, Next} = serve(Request, Members),
            From ! {self(), Answer},
            hold(Next)
    end.

serve({take, Take, Return}, Members) ->
    case Take() of
        error_no_members ->
            {"none", Members};
        Pid ->
            {dictionary, Known} = process_info(Pid, dictionary),
            {proplists:get_value(pool, Known), Members ++ [{Pid, Return}]}
    end;
serve({return, Condition}, [{Pid, Return} | Rest]) ->
    ok = Return(Pid, Condition),
    {"ok", Rest};
serve(kill, [{Pid, _} | Rest]) ->
    exit(Pid, kill),
    {"ok", Rest};
serve(holds, Members) ->
    {integer_to_list(length([Pid || {Pid, _} <- Members, is_process_alive(Pid)])), Members}.
